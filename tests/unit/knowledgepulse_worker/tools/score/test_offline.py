"""Scoring lines without a broker."""

from __future__ import annotations

import json

import pytest

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.score.offline import Partitions, make_scorer, score_line


@pytest.mark.parametrize(
    "created_at",
    ["2026-01-31T12:00:00Z", "2026-01-31t12:00:00,5z", "2026-01-31 12:00", "2026-01-31T12:00:00+0530"],
)
def test_scores_traces_with_every_valid_created_at(created_at):
    trace = ReasoningTrace.new(
        objective="Fix the failing build",
        steps=[{"type": "thought"}],
        result_summary="done",
        confidence=0.9,
        success=True,
        task_domain="code",
        created_at=created_at,
    )
    scored = score_line(trace.to_json(), make_scorer(Settings(), None), 10_000)

    assert scored.trace.metadata == trace.metadata


@pytest.mark.parametrize(
    ("key", "hashed"),
    [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536)],
)
@pytest.mark.parametrize("total", [1, 4, 7])
def test_a_partition_is_that_of_kafkas_producers(key, hashed, total):
    """The hashes are those of Kafka's own tests."""
    scorers = [make_scorer(Settings(), None) for _ in range(total)]
    line = json.dumps({"metadata": {"agent_id": key}}).encode()

    assert Partitions(scorers, "agent_id").of(line) is scorers[(hashed & 0x7FFFFFFF) % total]


def test_lines_without_a_key_take_turns():
    scorers = [make_scorer(Settings(), None) for _ in range(3)]
    partitions = Partitions(scorers, "agent_id")

    assert [partitions.of(b"{}") for _ in range(4)] == [*scorers, scorers[0]]
