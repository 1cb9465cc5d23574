"""The three overrides, in the order in which the reference applies them."""

from __future__ import annotations

from schemas import ReasoningTrace
from worker.scoring.dimensions import tool_names

SINGLE_THOUGHT = "single_thought"
RECOVERED = "recovered"
SINGLE_TOOL = "single_tool"


def apply_overrides(score: float, trace: ReasoningTrace) -> tuple[float, tuple[str, ...]]:
    """Return the score after the overrides that apply, and their names in order.

    - ``single_thought``: exactly one step and it is a thought; the score becomes 0.1.
    - ``recovered``: more than two error recoveries and success; 0.1 more, at most 1.
    - ``single_tool``: tools are used, but at most one distinct; 0.1 less, at least 0.
    """
    applied: list[str] = []
    steps = trace.steps
    if len(steps) == 1 and steps[0].type == "thought":
        score = 0.1
        applied.append(SINGLE_THOUGHT)
    if trace.metadata.success and sum(step.type == "error_recovery" for step in steps) > 2:
        score = min(1.0, score + 0.1)
        applied.append(RECOVERED)
    if len(tool_names(trace)) == 1:
        score = max(0.0, score - 0.1)
        applied.append(SINGLE_TOOL)
    return score, tuple(applied)
