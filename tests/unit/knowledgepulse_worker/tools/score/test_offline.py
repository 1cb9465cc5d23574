"""Scoring lines without a broker."""

from __future__ import annotations

import json

import pytest

from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.score.offline import Partitions, make_scorer, score_line
from support.traces import made


def new_scorer():
    return make_scorer(Settings(), None)


def trace(number):
    new = made(confidence=0.9)
    new.id = f"kp:trace:{number}"
    return new.to_json()


@pytest.mark.parametrize(
    "created_at",
    ["2026-01-31T12:00:00Z", "2026-01-31t12:00:00,5z", "2026-01-31 12:00", "2026-01-31T12:00:00+0530"],
)
def test_scores_traces_with_every_valid_created_at(created_at):
    trace = made(created_at=created_at)
    scored = score_line(trace.to_json(), make_scorer(Settings(), None), Settings(), embedder="none")

    assert scored.id == trace.id


@pytest.mark.parametrize(
    ("key", "hashed"),
    [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536)],
)
@pytest.mark.parametrize("total", [1, 4, 7])
def test_a_partition_is_that_of_kafkas_producers(key, hashed, total):
    """The hashes are those of Kafka's own tests."""
    line = json.dumps({"metadata": {"agent_id": key}}).encode()

    assert Partitions(total, "agent_id", new_scorer).next_partition(line) == (hashed & 0x7FFFFFFF) % total


def test_lines_without_a_key_take_turns():
    topic = Partitions(3, "agent_id", new_scorer)

    assert [topic.next_partition(b"{}") for _ in range(4)] == [0, 1, 2, 0]


def test_only_partitions_with_traces_take_memory():
    """10,000 caches would take half a gigabyte."""
    made = []

    def make():
        made.append(new_scorer())
        return made[-1]

    topic = Partitions(10_000, "id", make)
    lines = [trace(number) for number in "aba"]
    partitions = [topic.score(line, Settings(), "none").partition for line in lines]

    assert len(made) == 2
    assert partitions == [topic.next_partition(line) for line in lines]
