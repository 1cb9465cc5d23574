"""Rows of Braintrust's logs.

Source: https://www.braintrust.dev/docs/reference/api.
Compared with: its documents, in November 2026.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common.pattern import any_of, at
from knowledgepulse_convert.spans.records import Placed, Records, placed

_ROWS = Records(
    id=at("span_id"),
    trace=at("root_span_id"),
    parent=at("span_parents"),
    kind=at("span_attributes", "type"),
    kinds={"llm": "model", "tool": "tool"},
    title=at("span_attributes", "name"),
    start=at("metrics", "start"),
    end=at("metrics", "end"),
    input=at("input"),
    output=at("output"),
    error=at("error"),
    scores=at("scores"),
    above="spans[].",
)


def _records(document: Any) -> Placed:
    for path, row in placed(document):
        match row.get("output"):
            case [{"message": dict()}, *_] as choices:  # of the Chat Completions API, without its object
                yield path, row | {"output": {"choices": choices}}
            case _:
                yield path, row


FORMAT = _ROWS.format(
    "braintrust",
    __doc__,
    any_of({"span_id": ..., "root_span_id": ..., "span_attributes": ...}),
    members="span_id root_span_id span_attributes",
    records=_records,
)
