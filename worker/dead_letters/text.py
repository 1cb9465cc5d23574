"""Dead letters as text for a terminal, and as JSON.

Whatever a producer wrote is escaped, so that it can neither steer the terminal nor pass for ours.
"""

from __future__ import annotations

import json
import textwrap

from rich.filesize import decimal

from worker.dead_letters.letter import DeadLetter
from worker.dead_letters.replay import Outcome, Stays
from worker.kafka.reader import Record
from worker.terminal import printable, time_text

_COLUMNS = "{:8}  {:24}  {:14}  {:>8}  {:>8}  {:8}  {:20}  {}"
_MESSAGE = 60
HEAD = _COLUMNS.format("PLACE", "TIME", "REASON", "SIZE", "ATTEMPTS", "REPLAYED", "SOURCE", "MESSAGE")

WHY_IT_STAYS: dict[Stays, str] = {
    "replayed before": "it was replayed before",
    "too many attempts": "it was replayed --max-attempts times",
    "cut": "only the beginning of its value is here",
    "empty": "it has no value, and would be a dead letter again",
    "too large": "the raw topic does not take so large a record",
}


def row(letter: DeadLetter, replayed_to: str | None) -> str:
    """Return a dead letter as a line under :data:`HEAD`; nothing in it is of the trace's content."""
    return _COLUMNS.format(
        letter.place,
        time_text(letter.record.timestamp_ms),
        letter.headers.reason,
        _size(letter),
        letter.attempts,
        "no" if replayed_to is None else "yes",
        printable(letter.record.source),
        textwrap.shorten(printable(letter.headers.message), _MESSAGE, placeholder="…"),
    )


def as_json(letter: DeadLetter, replayed_to: str | None) -> str:
    """Return a dead letter as a line of JSON, in ASCII; nothing in it is of the trace's content."""
    return json.dumps(
        {
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp_ms": letter.record.timestamp_ms,
            "reason": letter.headers.reason,
            "source": letter.record.source,
            "attempts": letter.attempts,
            "bytes": _bytes(letter),
            "cut": letter.is_cut,
            "replayed_to": replayed_to,
            "exception": letter.headers.exception,
            "message": letter.headers.message,
        }
    )


def whole(record: Record) -> str:
    """Return everything that a record holds; its value comes last, and may have lines of its own."""
    value = "null" if record.value is None else f"{len(record.value)} bytes"
    lines = [
        f"place: {record.topic}/{record.partition}/{record.offset}",
        f"time: {time_text(record.timestamp)}",
        f"key: {_text(record.key)}",
        "headers:",
        *(f"  {printable(name)}: {_text(content)}" for name, content in record.headers),
        f"value: {value}",
    ]
    if record.value:
        lines.append(printable(_decoded(record.value), keep="\n\t"))
    return "\n".join(lines)


def outcome(outcome: Outcome, *, dry_run: bool) -> str:
    """Return what became of a dead letter as a line."""
    letter = outcome.letter
    if outcome.stays:
        return f"{letter.place} stays: {WHY_IT_STAYS[outcome.stays]}"
    verb = "would be replayed" if dry_run else "replayed"
    return f"{letter.place} {verb} to {outcome.to}, attempt {letter.attempts + 1}"


def _text(content: bytes | None) -> str:
    return "null" if content is None else printable(_decoded(content))


def _decoded(content: bytes) -> str:
    return content.decode(errors="backslashreplace")


def _bytes(letter: DeadLetter) -> int:
    """The bytes of the value as it came."""
    length = letter.headers.value_length
    return len(letter.record.value or b"") if length is None else length


def _size(letter: DeadLetter) -> str:
    return decimal(_bytes(letter)).replace(" bytes", " B").replace(" byte", " B")
