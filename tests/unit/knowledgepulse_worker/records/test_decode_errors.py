"""Whatever is wrong with bytes that others wrote, decoders raise one of the errors that readers expect."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.ledger_records import decode_entry, decode_position
from knowledgepulse_worker.records.score_header import decode_score
from knowledgepulse_worker.tools.common.scored_records import read_line, read_scored_record

DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
"""Deeper than Python may recurse."""

BAD_JSON = {
    "deep": DEEP,
    "no UTF-8": b'{"\xff":1}',
    "cut": b'{"score":',
    "another form": b"{}",
    "empty": b"",
}
BAD_MSGPACK = {
    "deep": b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0",
    "no UTF-8": b"\x95\x02\x01\x01\xa1\xff\xc0",
}


@pytest.mark.parametrize("text", BAD_JSON.values(), ids=BAD_JSON)
def test_decoders_of_json_raise_only_the_errors_that_readers_expect(text):
    with pytest.raises(DECODE_ERRORS):
        decode_score(text)
    with pytest.raises(DECODE_ERRORS):
        read_line("scored.jsonl:1", text)


@pytest.mark.parametrize("decode", [decode_entry, decode_position])
@pytest.mark.parametrize("value", BAD_MSGPACK.values(), ids=BAD_MSGPACK)
def test_decoders_of_the_changelog_raise_only_the_errors_that_readers_expect(decode, value):
    with pytest.raises(DECODE_ERRORS):
        decode(value)


@pytest.mark.parametrize("text", BAD_JSON.values(), ids=BAD_JSON)
def test_an_output_whose_score_cannot_be_decoded_is_foreign(published_traces, text):
    """A single one ended every command that reads outputs."""
    record = published_traces[0]
    headers = [(name, text if name == "kp-score" else value) for name, value in record.headers]

    assert read_scored_record(SimpleNamespace(value=record.value, headers=headers, timestamp=0)) is None
