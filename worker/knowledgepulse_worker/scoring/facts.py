"""Facts of a trace: plain numbers that a learned value weighs, each computed from the trace alone.

Stored policies name facts, so the facts that a release knows are never changed or removed. A later release
may add some, and then raises :data:`~knowledgepulse_worker.policy.FACTS_VERSION`. Lengths are logarithms,
because the tenth step says more than the hundredth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.scoring.counts import Counts


class Fact(NamedTuple):
    """A fact of a trace.

    Attributes:
        of: computes its value from the counts of a trace.
        unit: the unit of its value; a logarithm is that of 1 more than the number.
        highest: the highest possible value; every fact is at least 0. None if there is no limit.
        reason: why it may help to tell whether a trace is worth keeping.
        tell: describes it in a sentence about a trace.
    """

    of: Callable[[Counts], float]
    unit: str
    highest: float | None
    reason: str
    tell: Callable[[Counts], str]


def steps(counts: Counts) -> float:
    """Return the logarithm of the number of steps."""
    return math.log1p(counts.steps)


def characters(counts: Counts) -> float:
    """Return the logarithm of the number of characters in the steps."""
    return math.log1p(counts.characters)


def calls(counts: Counts) -> float:
    """Return the logarithm of the number of tool calls."""
    return math.log1p(counts.calls)


def tools(counts: Counts) -> float:
    """Return the logarithm of the number of distinct tools."""
    return math.log1p(counts.tools)


def thought_length(counts: Counts) -> float:
    """Return the logarithm of the mean length of a thought."""
    return math.log1p(_per(counts.thought_characters, counts.thoughts))


def observation_length(counts: Counts) -> float:
    """Return the logarithm of the mean length of an observation."""
    return math.log1p(_per(counts.observation_characters, counts.observations))


def result_length(counts: Counts) -> float:
    """Return the logarithm of the length of the result."""
    return math.log1p(counts.result_characters)


def one_tool_share(counts: Counts) -> float:
    """Return the share of the calls that use the most used tool."""
    return _per(counts.most_used, counts.calls)


def repeated_share(counts: Counts) -> float:
    """Return the share of the calls that equal an earlier call."""
    return _per(counts.repeated, counts.calls)


def failed_share(counts: Counts) -> float:
    """Return the share of the observations that name a failure."""
    return _per(counts.failed, counts.observations)


def recovered_share(counts: Counts) -> float:
    """Return the share of the steps that recover from an error."""
    return _per(counts.recoveries, counts.steps)


def last_failed(counts: Counts) -> float:
    """Return 1 if the last observation names a failure, else 0."""
    return float(counts.last_failed)


def ends_observed(counts: Counts) -> float:
    """Return 1 if the last step is an observation, else 0."""
    return float(counts.ends_observed)


def declines(counts: Counts) -> float:
    """Return 1 if the result declines the task, else 0."""
    return float(counts.declines)


def asks(counts: Counts) -> float:
    """Return 1 if the result ends with a question, else 0."""
    return float(counts.asks)


def _per(count: int, total: int) -> float:
    return count / total if total else 0.0


def _counted(number: int, noun: str) -> str:
    return counted(number, noun) if number else f"no {noun}s"


def _of(count: int, total: int, what: str) -> str:
    return f"{count:,} of {total:,} {what}" if total else f"no {what}"


def _mean(characters: int, number: int) -> str:
    return f"on average {round(_per(characters, number)):,}"


LOGARITHM, SHARE, YES_OR_NO = "logarithm", "share", "0 or 1"
"""The units of facts."""

FACTS: dict[str, Fact] = {
    "steps": Fact(
        steps, LOGARITHM, None, "an agent that is lost takes more steps",
        lambda counts: f"it has {_counted(counts.steps, 'step')}",
    ),
    "characters": Fact(
        characters, LOGARITHM, None, "a long run has more to learn from, or more noise",
        lambda counts: f"its steps have {_counted(counts.characters, 'character')}",
    ),
    "calls": Fact(
        calls, LOGARITHM, None, "some tasks cannot be solved without tools",
        lambda counts: f"it has {_counted(counts.calls, 'call')}",
    ),
    "tools": Fact(
        tools, LOGARITHM, None, "a task that needs several tools shows more of the work",
        lambda counts: f"it uses {_counted(counts.tools, 'tool')}",
    ),
    "thought_length": Fact(
        thought_length, LOGARITHM, None, "thoughts tell why a step was taken, or ramble",
        lambda counts: f"its thoughts have {_mean(counts.thought_characters, counts.thoughts)} characters",
    ),
    "observation_length": Fact(
        observation_length, LOGARITHM, None, "very long observations are dumps in which an agent gets lost",
        lambda counts:
            f"its observations have {_mean(counts.observation_characters, counts.observations)} characters",
    ),
    "result_length": Fact(
        result_length, LOGARITHM, None, "an empty result was often never reached",
        lambda counts: f"its result has {_counted(counts.result_characters, 'character')}",
    ),
    "one_tool_share": Fact(
        one_tool_share, SHARE, 1.0, "calls of a single tool are often one attempt after another",
        lambda counts: _of(counts.most_used, counts.calls, "calls use the same tool"),
    ),
    "repeated_share": Fact(
        repeated_share, SHARE, 1.0, "an agent that repeats a call has not learned from its answer",
        lambda counts: _of(counts.repeated, counts.calls, "calls repeat an earlier one"),
    ),
    "failed_share": Fact(
        failed_share, SHARE, 1.0, "failures are dead ends, or problems that were overcome",
        lambda counts: _of(counts.failed, counts.observations, "observations name a failure"),
    ),
    "recovered_share": Fact(
        recovered_share, SHARE, 1.0, "a recovery shows how an error was overcome",
        lambda counts: _of(counts.recoveries, counts.steps, "steps recover from an error"),
    ),
    "last_failed": Fact(
        last_failed, YES_OR_NO, 1.0, "a run that ends in a failure was seldom finished",
        lambda counts: f"its last observation names {'a' if counts.last_failed else 'no'} failure",
    ),
    "ends_observed": Fact(
        ends_observed, YES_OR_NO, 1.0, "a run that ends with an observation was cut off before an answer",
        lambda counts: f"it ends with {'an observation' if counts.ends_observed else 'its own step'}",
    ),
    "declines": Fact(
        declines, YES_OR_NO, 1.0, "a refusal is a failure in some domains and correct in others",
        lambda counts: f"its result {'declines' if counts.declines else 'does not decline'} the task",
    ),
    "asks": Fact(
        asks, YES_OR_NO, 1.0, "a result that asks is not the end of the work",
        lambda counts: f"its result {'ends' if counts.asks else 'does not end'} with a question",
    ),
}  # fmt: skip
"""The facts by name, in the order in which they were added."""
