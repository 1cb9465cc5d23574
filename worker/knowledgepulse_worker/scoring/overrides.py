"""The three overrides, in the reference's order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, TypeAlias

from knowledgepulse_worker.scoring.dimensions import Shape

Override: TypeAlias = Literal["single_thought", "recovered", "single_tool"]

SINGLE_THOUGHT: Final = "single_thought"
RECOVERED: Final = "recovered"
SINGLE_TOOL: Final = "single_tool"

EFFECTS: dict[Override, str] = {
    SINGLE_THOUGHT: "the trace is a single thought, so the score is 0.1",
    RECOVERED: "more than two error recoveries and success: 0.1 more, at most 1",
    SINGLE_TOOL: "one tool only: 0.1 less, at least 0",
}
"""A description of the effect of each override."""


def overrides_of(shape: Shape, *, success: bool) -> tuple[Override, ...]:
    """Return the names of the overrides that apply to a trace, in order.

    - ``single_thought``: the only step is a thought.
    - ``recovered``: the run succeeded after more than two error recoveries.
    - ``single_tool``: the steps use exactly one distinct tool.
    """
    applies: tuple[tuple[Override, bool], ...] = (
        (SINGLE_THOUGHT, shape.steps == 1 and shape.types == {"thought"}),
        (RECOVERED, success and shape.recoveries > 2),
        (SINGLE_TOOL, shape.tools == 1),
    )
    return tuple([name for name, does in applies if does])


def apply_overrides(score: float, overrides: Collection[str]) -> float:
    """Return the score after overrides.

    - ``single_thought``: the score becomes 0.1.
    - ``recovered``: plus 0.1, at most 1.
    - ``single_tool``: minus 0.1, at least 0.
    """
    if SINGLE_THOUGHT in overrides:
        score = 0.1
    if RECOVERED in overrides:
        score = min(1.0, score + 0.1)
    if SINGLE_TOOL in overrides:
        score = max(0.0, score - 0.1)
    return score
