"""The texts that a person needs to judge a trace; the score does not use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

MAX_TEXT_CHARACTERS = 300
"""Maximum characters of an objective and of a result."""

MAX_STEP_CHARACTERS = 160
FIRST_STEPS, LAST_STEPS = 3, 4
"""Maximum characters of a step, and how many steps are shown from each end."""


class StepText(NamedTuple):
    """The texts of a step: type, tool, content, JSON of the input, output; an absent text is empty."""

    type: str
    tool: str
    content: str
    input: str
    output: str


@dataclass(frozen=True, slots=True)
class Graded:
    """What graders said of a trace's run.

    Attributes:
        success: whether it succeeded, by somebody's judgement; None if nobody judged it.
        rewards: the numbers that graders gave, by name.
        task_id: the id of the task, which its other runs share.
    """

    success: bool | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    task_id: str | None = None


UNGRADED = Graded()


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a trace that a person or a model judges.

    Attributes:
        objective, result: at most :data:`MAX_TEXT_CHARACTERS` characters.
        steps: the first and the last steps, with at most :data:`MAX_STEP_CHARACTERS` characters each.
        native_id: the run's id in the system it comes from, if the trace names it.
        task: the digest of the whole objective, but for white space; None in lines of older releases.
        graded: what graders said of the run.
    """

    objective: str
    steps: tuple[str, ...]
    result: str
    native_id: str | None = None
    task: str | None = None
    graded: Graded = field(default_factory=Graded)


def content(
    objective: str, steps: Sequence[StepText], result: str, native_id: str | None, graded: Graded = UNGRADED
) -> Content:
    """Return the shortened texts of a trace."""
    shown = [_shown(step) for step in steps]
    if len(shown) > FIRST_STEPS + LAST_STEPS:
        left_out = len(shown) - FIRST_STEPS - LAST_STEPS
        shown = [*shown[:FIRST_STEPS], f"… {left_out} more …", *shown[-LAST_STEPS:]]
    short = shortened(objective, MAX_TEXT_CHARACTERS), tuple(shown), shortened(result, MAX_TEXT_CHARACTERS)
    return Content(*short, native_id, task_of(objective), graded)


def shortened(text: str, most: int) -> str:
    """Return a text on one line, cut to a number of characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"


def task_of(objective: str) -> str:
    """Return the digest by which traces of the same objective, but for white space, are known: 16 digits."""
    words = " ".join(objective.split())
    return blake2b(words.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _shown(step: StepText) -> str:
    said = step.content or step.output
    return shortened(
        " ".join(part for part in (f"{step.type}:", step.tool, step.input, said) if part), MAX_STEP_CHARACTERS
    )
