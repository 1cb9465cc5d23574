"""The 154 real traces that the reference scored; the demo has such runs, made by `kp-worker convert`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from knowledgepulse_schemas import ReasoningTrace

DATA = Path(__file__).parents[1] / "data"

LABELS = DATA / "reference_labels.jsonl"
"""The rewards of their runs."""

SCORES = DATA / "reference_scores.jsonl"
"""The scores that the KnowledgePulse SDK 0.1.1 gave them in a single pass, starting with an empty cache."""

TRACES = DATA / "reference_traces.jsonl"


def made(
    objective: str = "Fix it", steps: Sequence[dict[str, Any]] = ({"type": "thought"},), **members: Any
) -> ReasoningTrace:
    """Return a trace of a run that succeeded, with these members; the others do not matter."""
    usual = {"result_summary": "Done", "confidence": 0.5, "success": True, "task_domain": "code"}
    return ReasoningTrace.new(objective=objective, steps=[*steps], **usual | members)


def real_traces() -> list[bytes]:
    """Return the traces as the values of Kafka records."""
    return TRACES.read_bytes().splitlines()
