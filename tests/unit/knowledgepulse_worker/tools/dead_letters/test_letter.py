"""Reading dead letters, and selecting some of them."""

import dataclasses
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given

from knowledgepulse_worker.tools.dead_letters.letter import DeadLetter, Selection
from support.letters import NOON, TOPICS, buried, consumed, headers, raw_record, records


@given(records)
def test_a_dead_letter_round_trips_the_raw_record(record):
    """Including headers with the worker's names."""
    assert DeadLetter.read(buried(record)).record == record


@given(records)
def test_each_replay_only_increments_the_attempt(record):
    """Also after several failures, at other locations."""
    own = [header for header in record.headers if header[0] != "kp-attempt"]
    first = DeadLetter.read(buried(record)).attempts
    for attempt in range(first + 1, first + 4):
        replayed = DeadLetter.read(buried(record)).replay_headers()
        assert replayed == [*own, ("kp-attempt", str(attempt).encode())]
        record = msgspec.structs.replace(record, offset=record.offset // 2, headers=tuple(replayed))
        assert DeadLetter.read(buried(record)).attempts == attempt


@given(headers)
def test_a_record_not_written_by_a_worker_is_not_a_dead_letter(headers):
    own = tuple(header for header in headers if header[0] != "__streams.errors.exception")
    assert DeadLetter.read(consumed(raw_record(headers=own))) is None


@pytest.mark.parametrize(
    "other",
    [
        {"value": b"other"},
        {"value": None},
        {"key": b"other"},
        {"offset": 18},
        {"partition": 2},
        {"topic": "other"},
    ],
)
def test_identity_is_that_of_the_raw_record(other):
    """A crash can publish a letter twice; a recreated topic can have another record at its location."""
    first = DeadLetter.read(buried(raw_record()))
    again = DeadLetter.read(dataclasses.replace(buried(raw_record()), offset=6))
    assert first.identity == again.identity
    assert first.identity != DeadLetter.read(buried(raw_record(**other))).identity


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        (Selection(), True),
        (Selection(reasons=("empty", "not_json")), True),
        (Selection(reasons=("empty",)), False),
        (Selection(forms=("gzip", "text")), True),
        (Selection(forms=("gzip",)), False),
        (Selection(since=NOON), True),
        (Selection(since=NOON + timedelta(milliseconds=1)), False),
        (Selection(until=NOON + timedelta(milliseconds=1)), True),
        (Selection(until=NOON), False),
        (Selection(source=(TOPICS.raw,)), True),
        (Selection(source=(TOPICS.raw, 3)), True),
        (Selection(source=(TOPICS.raw, 3, 17)), True),
        (Selection(source=(TOPICS.raw, 3, 1)), False),
        (Selection(source=(TOPICS.raw, 1)), False),
        (Selection(source=("raw",)), False),
        (Selection(reasons=("not_json",), since=NOON, source=("raw",)), False),
    ],
)
def test_a_selection_matches_all_criteria(selection, selected):
    assert (DeadLetter.read(buried(raw_record(), form="text")) in selection) is selected
