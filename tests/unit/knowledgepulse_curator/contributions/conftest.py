"""A contributed record, as it is read from Kafka."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from knowledgepulse_schemas import ReasoningTrace

SCORE = {
    "score": 0.9, "complexity": 0.5, "novelty": 0.6, "tool_diversity": 1.0, "outcome_confidence": 0.5,
    "overrides": [], "domain": "code", "threshold": 0.5,
    "nearest": "kp:trace:0c83f1cd-0000-4000-8000-000000000000",
}  # fmt: skip


@pytest.fixture(scope="session")
def document():
    def build(**metadata):
        trace = ReasoningTrace.new(
            objective="Count", steps=[{"type": "tool_call", "tool": {"name": "wc"}, "input": {"n": 2**70}}],
            result_summary="Counted", confidence=0.5, success=True, task_domain="code", agent_id="builder-7",
            **{"visibility": "network", "privacy_level": "aggregated", "quality_score": 0.9, **metadata},
        )  # fmt: skip
        return trace.model_dump(mode="json", by_alias=True, exclude_none=True)

    return build


@pytest.fixture(scope="session")
def record():
    def build(trace, **score):
        value = trace if isinstance(trace, bytes | None) else json.dumps(trace).encode()
        headers = [
            ("kp-source", b"raw-traces/0/7"),
            ("kp-score", json.dumps(SCORE | score).encode()),
            ("kp-policy", b"0123456789ab"),
        ]
        return SimpleNamespace(
            topic="contribute", partition=0, offset=3, value=value, headers=headers, timestamp=1
        )

    return build
