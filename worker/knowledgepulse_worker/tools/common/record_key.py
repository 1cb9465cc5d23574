"""The record key of a trace."""

from __future__ import annotations

import json
from typing import Any, Literal, TypedDict

import msgspec

from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS

KeyBy = Literal["id", "agent_id", "task_domain"]


class _Metadata(TypedDict, total=False):
    agent_id: Any
    task_domain: Any


class _Trace(TypedDict, total=False):
    id: Any
    metadata: _Metadata


_keys = msgspec.json.Decoder(_Trace).decode


def key_of(value: bytes, key_by: KeyBy) -> bytes | None:
    """Return the record key of a trace's JSON; None if the field is missing or the JSON is invalid."""
    try:
        trace = _members(value)
        key = trace["id"] if key_by == "id" else trace["metadata"][key_by]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return key.encode("utf-8", "replace") if isinstance(key, str) else None


def _members(value: bytes) -> Any:
    """Return a trace without most members: as objects, all take several times the memory of the JSON."""
    try:
        return _keys(value)
    except DECODE_ERRORS:
        return json.loads(value)  # the decoder refuses lone surrogates
