"""Examine a candidate's trace: whether it can be a row, and whether it may leave."""

from __future__ import annotations

import asyncio

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.records.record import RawRecord
from knowledgepulse_worker.redaction.departure import is_clean_json
from knowledgepulse_worker.tools.export.candidates import Candidate, LeftOut, Rules
from knowledgepulse_worker.tools.export.dataset_rows import lines_of


async def examined(rules: Rules, one: Candidate, record: RawRecord) -> ReasoningTrace | LeftOut:
    """Return a candidate's trace, or the reason for leaving it out."""
    value = record.value or b""
    try:
        trace = decode_trace(value, len(value))
    except InvalidRecordError:
        return LeftOut("foreign", one.members.id)
    if held := rules.choices.departure.held_by_content(lambda: is_clean_json(value)):
        return LeftOut(held, one.members.id)
    try:
        for _ in lines_of(one, rules.trace(record, one), rules.choices.also):
            pass
    except (InvalidRecordError, ValueError):  # a number too large for a double, or for Python
        return LeftOut("not_convertible", one.members.id)
    if rules.scan is not None:
        secret = await asyncio.to_thread(rules.scan, value)
        if secret is not False:
            return LeftOut("unscanned" if secret is None else "secret", one.members.id)
    return trace
