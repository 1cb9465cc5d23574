"""Examine a candidate's trace: whether it can be a row, and whether it may leave."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from knowledgepulse_curator.export.candidates import Candidate, LeftOutRecord, Rules
from knowledgepulse_curator.export.dataset_rows import lines_of
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.tools.common.egress_rule import is_clean_json


class ExaminedTrace(NamedTuple):
    """A trace that can be a row.

    Attributes:
        trace: the trace.
        is_clean: whether the SDK's cleaner finds nothing in it; None if it was not run.
        cut: what is left out of its chat messages; see :class:`Line`.
    """

    trace: ReasoningTrace
    is_clean: bool | None
    cut: str


async def examined(rules: Rules, candidate: Candidate, record: RawRecord) -> ExaminedTrace | LeftOutRecord:
    """Return a candidate's trace, or the reason for leaving it out."""
    value, egress_rule = record.value or b"", rules.choices.egress_rule
    try:
        trace = decode_trace(value, len(value))
    except InvalidRecordError:
        return LeftOutRecord("foreign")
    is_clean = None if rules.choices.not_cleaned else is_clean_json(value)
    if egress_rule is not None and (held := egress_rule.held_by_content(lambda: bool(is_clean))):
        return LeftOutRecord(held)
    try:
        lines = lines_of(candidate, rules.trace(record, candidate), rules.choices)
        cut = "".join(line.cut for line in lines)
    except (InvalidRecordError, ValueError):  # a number too large for a double, or for Python
        return LeftOutRecord("not_convertible")
    if rules.scan is not None:
        secret = await asyncio.to_thread(rules.scan, value)
        if secret is not False:
            return LeftOutRecord("unscanned" if secret is None else "secret")
    return ExaminedTrace(trace, is_clean, cut)
