"""Read the texts that a person needs to judge a trace from a record's bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from knowledgepulse_schemas.trace import rewards_of, task_id_of
from knowledgepulse_worker.policy import Reading
from knowledgepulse_worker.records.decode import decode_members
from knowledgepulse_worker.records.valid_traces import read_assumed, read_judged
from knowledgepulse_worker.scoring import Content, Counts, Graded, StepText, content, count_trace


class _Tool(msgspec.Struct):
    name: str


class _Step(msgspec.Struct):
    type: str
    content: str | None = None
    tool: _Tool | None = None
    input: msgspec.Raw = msgspec.Raw()
    output_summary: str | None = None


class _Task(msgspec.Struct):
    objective: str


class _Outcome(msgspec.Struct):
    result_summary: str


_NULL = msgspec.Raw(b"null")


class _Metadata(msgspec.Struct):
    success: bool = False
    # Each might be any JSON: the first one up to release 0.3.0, the others always.
    native_id: msgspec.Raw = _NULL
    outcome_source: msgspec.Raw = _NULL
    rewards: msgspec.Raw = _NULL
    task_id: msgspec.Raw = _NULL


class _Trace(msgspec.Struct):
    task: _Task
    steps: list[_Step]
    outcome: _Outcome
    metadata: _Metadata


class _Sources(msgspec.Struct):
    outcome_source: msgspec.Raw = _NULL
    confidence_source: msgspec.Raw = _NULL


class _SourcesOnly(msgspec.Struct):
    metadata: _Sources


class Texts(NamedTuple):
    """The texts of a trace."""

    objective: str
    steps: list[StepText]
    result: str
    native_id: str | None
    graded: Graded


def texts_of(value: bytes) -> Texts:
    """Return the texts of a valid trace.

    Raises:
        InvalidRecordError: the trace is not valid.
    """
    return _texts(decode_members(value, _Trace))


def _texts(trace: _Trace) -> Texts:
    steps = [
        StepText(
            step.type,
            "" if step.tool is None else step.tool.name,
            step.content or "",
            bytes(step.input).decode(),
            step.output_summary or "",
        )
        for step in trace.steps
    ]
    metadata = trace.metadata
    graded = Graded(
        metadata.success if read_judged(metadata.outcome_source) else None,
        rewards_of(_decoded(metadata.rewards, b"[")),
        task_id_of(_decoded(metadata.task_id, b'"')),
    )
    return Texts(
        trace.task.objective,
        steps,
        trace.outcome.result_summary,
        _decoded(metadata.native_id, b'"'),
        graded,
    )


def sources_of(value: bytes) -> tuple[bool | None, bool]:
    """Return who says how the run of a valid trace ended.

    Returns:
        whether somebody judged it, None if the trace does not tell; whether its confidence is its converter's
        default, since the run told none.

    Raises:
        InvalidRecordError: the trace is not valid.
    """
    sources = decode_members(value, _SourcesOnly).metadata
    return read_judged(sources.outcome_source), read_assumed(sources.confidence_source)


def _decoded(member: msgspec.Raw, start: bytes) -> Any:
    """Return the value of a member that begins as it should; None for any other."""
    return msgspec.json.decode(member) if bytes(member).startswith(start) else None


def content_of(value: bytes) -> Content:
    """Return the shortened texts of a valid trace.

    Raises:
        InvalidRecordError: the trace is not valid.
    """
    return content(*texts_of(value))


def counts_of(value: bytes, reading: Reading = Reading.COUNTS) -> Counts:
    """Return the counts of a valid trace, with its words if they are wanted.

    Raises:
        InvalidRecordError: the trace is not valid.
    """
    return count_trace(decode_members(value, _Trace), reading)


def content_and_counts_of(value: bytes) -> tuple[Content, Counts]:
    """Return the shortened texts and the counts of a valid trace, with its words; it is decoded once.

    Raises:
        InvalidRecordError: the trace is not valid.
    """
    trace = decode_members(value, _Trace)
    return content(*_texts(trace)), count_trace(trace, Reading.WORDS)
