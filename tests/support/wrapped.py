"""Records in the forms in which companies wrap a document, each with the same trace.

``tests/data/wrapped/forms.jsonl`` was recorded from the programs that it names.
"""

from __future__ import annotations

import json
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import NamedTuple

_DATA = Path(__file__).parents[1] / "data"


class WrappedRecord(NamedTuple):
    """A record: the form, its key, value and headers."""

    form: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@cache
def wrapped_records() -> dict[str, WrappedRecord]:
    """Return the records by form."""
    lines = (_DATA / "wrapped" / "forms.jsonl").read_bytes().splitlines()
    records = (_record(**json.loads(line)) for line in lines)
    return {record.form: record for record in records}


def plain_trace() -> bytes:
    """Return the trace that all of them hold."""
    value = wrapped_records()["plain"].value
    assert value is not None
    return value


def _record(*, form, made_by, key_base64, value_base64, headers) -> WrappedRecord:
    assert made_by
    return WrappedRecord(
        form, _bytes(key_base64), _bytes(value_base64), tuple((name, _bytes(text)) for name, text in headers)
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
