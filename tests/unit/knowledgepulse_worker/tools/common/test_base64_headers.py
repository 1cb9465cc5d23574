"""Headers that Connect wrote as base64 are told, and taken for nobody's."""

import logging
from base64 import b64encode

import pytest

from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_worker.tools.common import base64_headers
from knowledgepulse_worker.tools.common.base64_headers import (
    has_base64_headers,
    warn_if_base64_headers,
    warn_of_base64_headers,
)
from knowledgepulse_worker.tools.common.scored_records import worker_headers

SCORED = [("kp-source", b"raw-traces/3/1204"), ("kp-score", b'{"score": 0.5}'), ("kp-policy", b"ab" * 16)]


def encoded(headers):
    return [(name, b64encode(value)) for name, value in headers]


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (encoded(SCORED), True),
        (encoded([("kp-reason", b"not_json")]), True),
        (SCORED, False),
        ([("kp-reason", b"not_json")], False),
        ([("kp-source", None), ("kp-reason", None)], False),
        (encoded([("kp-source", b"of a producer")]), False),
        ([], False),
    ],
)
def test_a_workers_headers_in_base64_are_told_from_others(headers, told):
    assert has_base64_headers(headers) is told


def test_the_remedy_is_logged_only_if_there_are_such_records(caplog):
    with caplog.at_level(logging.WARNING):
        warn_of_base64_headers("contribute", 0)
        assert not caplog.messages
        warn_of_base64_headers("contribute", 7)

    assert "7 skipped records are base64: set the header.converter" in caplog.text
    assert worker_headers(encoded(SCORED)) is not None, "the names are a worker's; the values tell"


def test_a_command_that_reads_on_and_on_tells_each_topic_once_in_a_while(caplog, monkeypatch):
    monkeypatch.setattr(base64_headers, "_logged", LogInterval(iter((0, 1, 2, 61)).__next__))
    for topic in ("contribute", "contribute", "rejected", "contribute"):
        warn_if_base64_headers(topic, encoded(SCORED))
        warn_if_base64_headers(topic, SCORED)

    assert [message.split(": ")[0] for message in caplog.messages] == ["contribute", "rejected", "contribute"]
    assert "skipped records are base64: set the header.converter" in caplog.text
