"""Checks of a single output against its record and its own headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

from knowledgepulse_kafka.records import NO_TIMESTAMP, RawRecord
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.dead_letter import ContentReason, Reason, UnreadReason
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.records.decode import check_readable, decode_whole
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.wrapping import Steps, ValueRead
from knowledgepulse_worker.scoring import Counts, Nearest, Score, score_trace
from knowledgepulse_worker.scoring.dimensions import NOVELTY_UNKNOWN
from knowledgepulse_worker.tools.audit.source_index import Output, short_hash

ROUNDING = 1e-9
"""Tolerance of recomputing a number from the same inputs, on any machine."""

_RECOMPUTED = [name for name in DIMENSIONS if name != "novelty"]


class RecordRead(NamedTuple):
    """What reading a record found.

    Attributes:
        trace: the record's; None if it is none.
        rejection: why it is none; None if it is one.
        steps: the steps that lead to the trace in the value; none if it is the value.
    """

    trace: ReasoningTrace | None
    rejection: Reason | None = None
    steps: Steps = ()


def read_trace(record: RawRecord, unwrap: Sequence[str]) -> RecordRead:
    """Decode a record of any size: the size limit is a setting, which may have changed since.

    ``unwrap``: the steps that could lead to a trace when an output was made, which may have changed, too.
    """
    try:
        check_readable(record)
        whole = decode_whole(record.value, record.size, unwrap)
    except InvalidRecordError as error:
        return RecordRead(None, error.reason)
    return RecordRead(whole.trace, steps=whole.steps)


def mismatches(record: RawRecord, read: RecordRead, output: Output, builder: Outputs) -> list[str]:
    """Name the parts of an output that differ from what the worker builds from its record and headers.

    ``read``: what reading the record finds, under the settings of the output.
    """
    if record.fault is not None or _was_unread(record, output):
        return []  # one of the two has no content, because limits.batch_bytes has changed
    wrong = []
    # A record without a timestamp is published with the current time.
    if output.timestamp_ms != record.timestamp_ms != NO_TIMESTAMP:
        wrong.append("timestamp")
    if output.says.failure is None and read.trace is None:
        return [*wrong, "value"]
    builder = builder.under(output.records)
    build = builder.build_truncated if output.truncated else builder.build
    try:
        built = build(record, output.says, ValueRead(form=output.form, steps=read.steps))
    except DECODE_ERRORS:  # invalid kp-score, which is reported elsewhere
        return wrong
    expected = Output.of(built, output.says, truncated=output.truncated)
    names = ["key", "value", "headers"]
    if expected.partition is not None:
        names.append("partition")
    return wrong + [name for name in names if getattr(output, name) != getattr(expected, name)]


def _was_unread(record: RawRecord, output: Output) -> bool:
    """Return whether the worker could not read a record that can be read now."""
    failure = output.says.failure
    return (
        failure is not None
        and failure.reason in get_args(UnreadReason)
        and record.value is not None
        and output.value == short_hash(None)
    )


def check_dead_letter(rejection: Reason | None, output: Output) -> list[str]:
    """Check a dead letter's reason by decoding the record."""
    failure = output.says.failure
    if failure is None or failure.reason not in get_args(ContentReason) or failure.reason == rejection:
        return []
    return [
        f"kp-reason is {failure.reason}, "
        + (f"expected {rejection}" if rejection else "the record is a trace")
    ]


def check_score(
    trace: ReasoningTrace, counts: Counts | None, output: Output, score: Score, policy: Policy | None
) -> list[str]:
    """Recompute an output's ``kp-score``, given its novelty.

    ``counts``: the trace's, which a policy with a learned value needs. ``policy``: the one that the output
    names; None if it is not known. Then only the dimensions, the
    overrides and the decision are checked.
    """
    nearest: Nearest | None = Nearest(1 - score.novelty, score.nearest)
    if score.nearest is None and score.novelty == NOVELTY_UNKNOWN:
        nearest = None
    expected = score_trace(trace, nearest, policy or Policy(), counts)
    numbers, texts = {name: name for name in _RECOMPUTED}, ["overrides"]
    if policy is not None:
        numbers |= {"quality_score": "score"}
        if policy.profile(trace.metadata.task_domain).share is None:
            numbers |= {"threshold": "threshold"}
            texts += ["share", "rank", "of"]
        if None not in (score.learned, expected.learned):
            numbers["learned"] = "learned"
        elif score.learned != expected.learned:
            texts.append("learned")
        texts += ["domain", "withheld"]
    wrong = [
        f"{shown} is {getattr(score, name):.9g}, recomputed {getattr(expected, name):.9g}"
        for name, shown in numbers.items()
        if not abs(getattr(score, name) - getattr(expected, name)) <= ROUNDING
    ]
    wrong += [
        f"{name} differs from the recomputed value"
        for name in texts
        if getattr(score, name) != getattr(expected, name)
    ]
    if output.says.decision != score.decision:
        wrong.append(f"decision is {output.says.decision}, but its kp-score gives {score.decision}")
    return wrong
