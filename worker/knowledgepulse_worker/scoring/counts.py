"""Counts of a trace, from which its facts are computed in one pass over the steps, and its words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from pydantic import OnErrorOmit, StringConstraints, TypeAdapter

from knowledgepulse_worker.policy import Reading
from knowledgepulse_worker.scoring.text import StepLike, TraceLike, input_json
from knowledgepulse_worker.scoring.words import distinct_words

Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
"""A number of things that a float can hold exactly, checked when it is decoded."""

FAILURE_CHARACTERS = 400
"""Characters at the beginning of an observation that are searched for a failure."""

REFUSAL_CHARACTERS = 2_000
"""Characters at the beginning of a result that are searched for a refusal."""

QUESTION_CHARACTERS = 200
"""Characters at the end of a result that are searched for a question."""

FAILURE_WORDS = (
    "error", "fail", "exception", "traceback", "not found", "no such", "invalid", "denied", "cannot",
)  # fmt: skip
"""Words of a failure, in lower case."""

REFUSAL_WORDS = (
    "cannot", "can't", "can\u2019t", "unable to", "not able to", "not possible", "unfortunately", "sorry",
    "do not have", "don't have",
)  # fmt: skip
"""Words of a result that declines the task, in lower case."""


def _search(words: Iterable[str]) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that returns the texts which name one of the words, in letters of any case.

    pydantic's regular expressions search for all words at once, in a quarter of the time of `in`.
    """
    pattern = StringConstraints(pattern="|".join(words))
    matching = TypeAdapter(list[OnErrorOmit[Annotated[str, pattern]]]).validator.validate_python
    return lambda texts: matching([*map(_lowered, texts)])


def _lowered(text: str) -> str | bytes:
    lowered = text.lower()
    # A lone surrogate, which no decoded text has, would not match.
    return lowered if lowered.isascii() else lowered.encode(errors="replace")


_naming_failures, _naming_refusals = _search(FAILURE_WORDS), _search(REFUSAL_WORDS)


def names_failure(text: str) -> bool:
    """Return whether the beginning of an observation names a failure."""
    return bool(_naming_failures([text[:FAILURE_CHARACTERS]]))


class Counts(Struct, frozen=True, omit_defaults=True):
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
        words: the distinct words of each part of the text ``parts``, with spaces between them; None if they
            were not read.
        buckets: the buckets of these words, two bytes each, if an embedder has hashed them already.
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
    words: str | None = None
    buckets: Annotated[bytes, Meta(max_length=0)] | None = None  # not accepted from files, which have words


def reading_of(counts: Counts | None) -> Reading:
    """Return what was read of a trace."""
    if counts is None:
        return Reading.NOTHING
    return Reading.COUNTS if counts.words is None and counts.buckets is None else Reading.WORDS


def count_trace(trace: TraceLike, reading: Reading = Reading.COUNTS, buckets: bytes | None = None) -> Counts:
    """Count a trace's steps, and read its words if they are wanted and not hashed already."""
    wanted = reading is Reading.WORDS and buckets is None
    words = distinct_words(trace) if wanted else None
    return count_steps(trace.steps, trace.outcome.result_summary, words, buckets)


def count_steps(
    steps: Sequence[StepLike], result: str, words: str | None = None, buckets: bytes | None = None
) -> Counts:
    """Count a trace's steps; the time is linear in the trace's size, whatever it consists of.

    Args:
        steps: the steps.
        result: the summary of the result.
        words: the distinct words, if they were read.
        buckets: their buckets, if they were hashed.
    """
    thoughts = recoveries = 0
    characters = thought_characters = observation_characters = 0
    called: list[tuple[str, str, str]] = []
    by_tool: dict[str, int] = {}  # building a Counter takes longer than all else that is done for calls
    observed_heads: list[str] = []
    kind = ""
    for step in steps:
        kind, content, output = step.type, step.content or "", step.output_summary or ""
        given = "" if step.input is None else input_json(step.input)
        if given == "null":
            given = ""
        length = len(content)
        characters += length + len(given) + len(output)
        if kind == "thought":
            thoughts += 1
            thought_characters += length
            continue
        if kind == "tool_call":
            tool = "" if step.tool is None else step.tool.name
            called.append((tool, content, given))
            by_tool[tool] = by_tool.get(tool, 0) + 1
            if not output:
                continue
            observed = output
        else:
            observed = content or output
            recoveries += kind == "error_recovery"
        observation_characters += len(observed)
        observed_heads.append(observed[:FAILURE_CHARACTERS])
    return Counts(
        len(steps),
        thoughts,
        len(called),
        len(observed_heads),
        recoveries,
        characters,
        thought_characters,
        observation_characters,
        len(result),
        tools=len(by_tool),
        most_used=max(by_tool.values(), default=0),
        repeated=len(called) - len({*called}),
        failed=len(_naming_failures(observed_heads)),
        last_failed=bool(_naming_failures(observed_heads[-1:])),
        ends_observed=kind == "observation",
        declines=bool(_naming_refusals([result[:REFUSAL_CHARACTERS]])),
        asks="?" in result[-QUESTION_CHARACTERS:],
        words=words,
        buckets=buckets,
    )
