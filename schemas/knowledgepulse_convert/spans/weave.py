"""Calls of Weave, as its API and its export write them.

Source: https://docs.wandb.ai/weave/reference/service-api; the types of ``weave``.
Compared with: runs of ``weave`` 0.54, whose SDK writes the same members.
"""

from __future__ import annotations

import re
from typing import Any

from knowledgepulse_convert.common.pattern import any_of, at
from knowledgepulse_convert.spans.records import Placed, Records, placed

_REFERENCE = re.compile(r"^weave:///.*/op/([^/:]+):.*$")
"""A call's operation, with its version."""

_CALLS = Records(
    id=at("id"),
    trace=at("trace_id"),
    parent=at("parent_id"),
    kind=at("attributes", "weave", "kind"),
    kinds={"agent": "agent", "llm": "model", "tool": "tool", "search": "tool"},
    title=at("op_name"),
    start=at("started_at"),
    end=at("ended_at"),
    input=at("inputs"),
    output=at("output"),
    error=at("exception"),
    service=at("project_id"),
)


def _records(document: Any) -> Placed:
    for path, call in placed(document):
        yield path, call | {"op_name": _REFERENCE.sub(r"\1", str(call.get("op_name")))}


FORMAT = _CALLS.format(
    "weave",
    __doc__,
    any_of({"id": str, "trace_id": str, "op_name": str, "inputs": dict}),
    members="op_name trace_id started_at inputs",
    within="calls",
    records=_records,
)
