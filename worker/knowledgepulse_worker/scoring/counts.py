"""Counts of a trace, from which its facts are computed in one pass over the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from msgspec import Meta

from knowledgepulse_schemas import ReasoningTrace

Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
"""A number of things that a float can hold exactly, checked when it is decoded."""

HEAD = 400
"""Characters at the beginning of an observation that are searched for a failure."""

RESULT = 2_000
"""Characters at the beginning of a result that are searched for a refusal."""

QUESTION = 200
"""Characters at the end of a result that are searched for a question."""

FAILURES = (
    "error", "fail", "exception", "traceback", "not found", "no such", "invalid", "denied", "cannot",
)  # fmt: skip
"""Words of a failure, in lower case."""

REFUSALS = (
    "cannot", "can't", "can\u2019t", "unable to", "not able to", "not possible", "unfortunately", "sorry",
    "do not have", "don't have",
)  # fmt: skip
"""Words of a result that declines the task, in lower case."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a trace.

    An observation is a text that the environment gave back: an observation or error recovery, or the output
    of a call.

    Attributes:
        steps: number of steps.
        thoughts: number of thoughts.
        calls: number of tool calls.
        observations: number of observations.
        recoveries: number of error recoveries.
        characters: characters of all steps' contents, inputs and outputs.
        thought_characters: characters of the thoughts.
        observation_characters: characters of the observations.
        result_characters: characters of the result.
        tools: number of distinct tools that were called.
        most_used: calls of the tool that was called most.
        repeated: calls that equal an earlier call in tool, input and content.
        failed: observations whose beginning names a failure.
        last_failed: whether the last observation is one of these.
        ends_observed: whether the last step is an observation.
        declines: whether the result declines the task.
        asks: whether the result ends with a question.
    """

    steps: Count
    thoughts: Count
    calls: Count
    observations: Count
    recoveries: Count
    characters: Count
    thought_characters: Count
    observation_characters: Count
    result_characters: Count
    tools: Count
    most_used: Count
    repeated: Count
    failed: Count
    last_failed: bool
    ends_observed: bool
    declines: bool
    asks: bool


def count_steps(steps: Iterable[tuple[str, str, str, str, str]], result: str) -> Counts:
    """Count a trace's steps; the time is linear in the trace's size, whatever it consists of.

    Args:
        steps: type, tool, content, JSON of the input, and output of each step; an absent text is empty.
        result: the summary of the result.
    """
    number = thoughts = recoveries = observations = failed = 0
    characters = thought_characters = observation_characters = 0
    called: list[tuple[str, str, str]] = []
    by_tool: dict[str, int] = {}  # building a Counter takes longer than all else that is done for calls
    kind, fails = "", False
    for kind, tool, content, own_input, output in steps:
        number += 1
        given = "" if own_input == "null" else own_input
        characters += len(content) + len(given) + len(output)
        if kind == "thought":
            thoughts += 1
            thought_characters += len(content)
            continue
        if kind == "tool_call":
            called.append((tool, content, given))
            by_tool[tool] = by_tool.get(tool, 0) + 1
            if not output:
                continue
            observed = output
        else:
            observed = content or output
            recoveries += kind == "error_recovery"
        observations += 1
        observation_characters += len(observed)
        fails = _names(FAILURES, observed[:HEAD])
        failed += fails
    return Counts(
        number,
        thoughts,
        len(called),
        observations,
        recoveries,
        characters,
        thought_characters,
        observation_characters,
        len(result),
        tools=len(by_tool),
        most_used=max(by_tool.values(), default=0),
        repeated=len(called) - len({*called}),
        failed=failed,
        last_failed=fails,
        ends_observed=kind == "observation",
        declines=_names(REFUSALS, result[:RESULT]),
        asks="?" in result[-QUESTION:],
    )


def count_trace(trace: ReasoningTrace, inputs: Iterable[str]) -> Counts:
    """Count a trace's steps.

    Args:
        trace: the trace.
        inputs: the JSON of each step's input, empty for a step without input.
    """
    return count_steps(_texts(trace, inputs), trace.outcome.result_summary)


def _texts(trace: ReasoningTrace, inputs: Iterable[str]) -> Iterator[tuple[str, str, str, str, str]]:
    for step, given in zip(trace.steps, inputs, strict=True):
        tool = step.tool
        yield (
            step.type,
            "" if tool is None else tool.name,
            step.content or "",
            given,
            step.output_summary or "",
        )


def _names(words: Iterable[str], text: str) -> bool:
    lowered = text.lower()
    for word in words:  # noqa: SIM110 - this runs for every observation, and any() takes twice as long
        if word in lowered:
            return True
    return False
