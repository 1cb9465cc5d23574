"""The texts that a person needs to judge a trace, and its cheap features; the score uses neither."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

TEXT = 300
"""Maximum characters of an objective and of a result."""

STEP = 160
FIRST, LAST = 3, 4
"""Maximum characters of a step, and how many steps are shown from each end."""

_FAILURE = re.compile(
    r"error|exception|traceback|not found|no such|invalid|fail(ed|ure)|denied|cannot|syntax", re.IGNORECASE
)
_HEAD = 300
"""Number of characters at the beginning of an observation that are searched for an error."""


class StepText(NamedTuple):
    """The texts of a step: type, tool, content, JSON of the input, output; an absent text is empty."""

    type: str
    tool: str
    content: str
    input: str
    output: str


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a trace that may predict whether it is worth keeping; they need no model.

    Attributes:
        length: number of steps.
        repeated: share of the calls that repeat an earlier call with the same tool and input.
        failed: share of the observations that begin with an error.
    """

    length: int
    repeated: float
    failed: float


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a trace that a person or a model judges.

    Attributes:
        objective, result: at most :data:`TEXT` characters.
        steps: the first and the last steps, with at most :data:`STEP` characters each.
        features: the features of the whole trace.
        native_id: the run's id in the system it comes from, if the trace names it.
    """

    objective: str
    steps: tuple[str, ...]
    result: str
    features: Features
    native_id: str | None = None


def content(objective: str, steps: Sequence[StepText], result: str, native_id: str | None) -> Content:
    """Return the shortened texts of a trace, and its features."""
    shown = [_shown(step) for step in steps]
    if len(shown) > FIRST + LAST:
        left_out = len(shown) - FIRST - LAST
        shown = [*shown[:FIRST], f"… {left_out} more …", *shown[-LAST:]]
    return Content(
        shortened(objective, TEXT), tuple(shown), shortened(result, TEXT), features(steps), native_id
    )


def features(steps: Sequence[StepText]) -> Features:
    """Return the features of a trace."""
    calls = [(step.tool, step.input or step.content) for step in steps if step.type == "tool_call"]
    seen = [step for step in steps if step.type in ("observation", "error_recovery")]
    observed = [step.content or step.output for step in seen]
    failed = sum(bool(_FAILURE.search(text[:_HEAD])) for text in observed)
    return Features(
        length=len(steps),
        repeated=1 - len({*calls}) / len(calls) if calls else 0,
        failed=failed / len(observed) if observed else 0,
    )


def shortened(text: str, most: int) -> str:
    """Return a text on one line, cut to a number of characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"


def _shown(step: StepText) -> str:
    said = step.content or step.output
    return shortened(" ".join(part for part in (f"{step.type}:", step.tool, step.input, said) if part), STEP)
