"""Outputs past their topic's retention are counted, and logged once a minute."""

import time

import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.lane.retention import RetentionCheck
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy

HOUR_MS = 3_600_000


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def expiry(registry):
    topics = [
        Topic("contribute", 1, 10**6, retention_ms=HOUR_MS),
        Topic("rejected", 1, 10**6, retention_ms=HOUR_MS),
        Topic("dead-letter", 1, 10**6),
    ]
    return RetentionCheck({topic.name: topic for topic in topics}, Metrics(Policy(), 0.1, registry))


def output(topic, age_ms):
    now = time.time_ns() // 1_000_000
    return OutputRecord(
        topic, 0, NO_TIMESTAMP if age_ms is None else now - age_ms, b"key", b"private", (("h", b"private"),)
    )


def expired(registry):
    return registry.get_sample_value("kp_expired_outputs_total")


def test_an_output_past_retention_is_counted_and_logged_once_a_minute(expiry, registry, caplog):
    for topic in ("contribute", "rejected"):
        for _ in range(5):
            expiry.check(output(topic, 2 * HOUR_MS))

    assert expired(registry) == 10
    assert [message.split()[0] for message in caplog.messages] == ["contribute", "rejected"]
    assert "after 3600 s (retention.ms), but an output 7200 s old was published" in caplog.text
    assert "private" not in caplog.text


@pytest.mark.parametrize("age_ms", [0, HOUR_MS // 2, -HOUR_MS, None])
def test_an_output_within_retention_is_not_counted(expiry, registry, age_ms, caplog):
    expiry.check(output("contribute", age_ms))

    assert (expired(registry), caplog.messages) == (0, [])


def test_no_output_is_too_old_for_a_topic_without_retention(expiry, registry):
    expiry.check(output("dead-letter", 10**6 * HOUR_MS))

    assert expired(registry) == 0
