"""Read the texts that a person needs to judge a trace from a record's bytes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from knowledgepulse_worker.policy import Reading
from knowledgepulse_worker.records.decode import decode_members
from knowledgepulse_worker.records.valid_traces import read_judged
from knowledgepulse_worker.scoring import Content, Counts, StepText, content, count_trace


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


class _Metadata(msgspec.Struct):
    native_id: msgspec.Raw = msgspec.Raw(b"null")  # up to release 0.3.0, it might be any JSON


class _Trace(msgspec.Struct):
    task: _Task
    steps: list[_Step]
    outcome: _Outcome
    metadata: _Metadata


class _SourceOnly(msgspec.Struct):
    outcome_source: msgspec.Raw = msgspec.Raw(b"null")


class _MetadataOnly(msgspec.Struct):
    metadata: _SourceOnly


class Texts(NamedTuple):
    """The texts of a trace."""

    objective: str
    steps: list[StepText]
    result: str
    native_id: str | None


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
    native_id = bytes(trace.metadata.native_id)
    return Texts(
        trace.task.objective,
        steps,
        trace.outcome.result_summary,
        msgspec.json.decode(native_id, type=str) if native_id.startswith(b'"') else None,
    )


def judged_of(value: bytes) -> bool | None:
    """Return whether somebody judged the run of a valid trace; None if it does not tell.

    Raises:
        InvalidRecordError: the trace is not valid.
    """
    return read_judged(decode_members(value, _MetadataOnly).metadata.outcome_source)


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
