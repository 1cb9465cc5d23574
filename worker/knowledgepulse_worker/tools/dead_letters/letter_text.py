"""Renderings of dead letters for the terminal and as JSON.

Text from producers is escaped, so that it can neither control the terminal nor be mistaken for our own.
"""

from __future__ import annotations

import json
import textwrap

from rich.filesize import decimal

from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.terminal.printable import time_text
from knowledgepulse_worker.tools.dead_letters.letter import DeadLetter
from knowledgepulse_worker.tools.dead_letters.replay import NoReplayReason, Replay

_COLUMNS = "{:8}  {:24}  {:14}  {:17}  {:>8}  {:>8}  {:8}  {:20}  {}"
_MESSAGE_CHARACTERS = 60
HEAD = _COLUMNS.format(
    *("LOCATION", "TIME", "REASON", "FORM", "SIZE", "ATTEMPTS", "REPLAYED", "SOURCE", "MESSAGE")
)

SKIP_REASONS: dict[NoReplayReason, str] = {
    "replayed before": "already replayed",
    "of another topic": "its record is not from the raw topic",
    "too many attempts": "already replayed --max-attempts times",
    "truncated": "its value is truncated",
    "empty": "it has no value and would become a dead letter again",
    "too large": "larger than the raw topic's max.message.bytes",
}


def row(letter: DeadLetter, replayed_to: str | None) -> str:
    """Format a dead letter as a table row below :data:`HEAD`, without the trace's content."""
    return _COLUMNS.format(
        letter.location,
        time_text(letter.record.timestamp_ms),
        letter.headers.reason,
        letter.headers.form or "-",
        decimal(_bytes(letter)).replace(" bytes", " B").replace(" byte", " B"),
        letter.attempts,
        "no" if replayed_to is None else "yes",
        printable(letter.record.source),
        textwrap.shorten(printable(letter.headers.message), _MESSAGE_CHARACTERS, placeholder="…"),
    )


def as_json(letter: DeadLetter, replayed_to: str | None) -> str:
    """Format a dead letter as a line of ASCII JSON, without the trace's content."""
    return json.dumps(
        {
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp_ms": letter.record.timestamp_ms,
            "reason": letter.headers.reason,
            "form": letter.headers.form,
            "source": letter.record.source,
            "attempts": letter.attempts,
            "bytes": _bytes(letter),
            "cut": letter.is_truncated,
            "replayed_to": replayed_to,
            "exception": letter.headers.exception,
            "message": letter.headers.message,
        }
    )


def details(record: Record) -> str:
    """Format a whole record; the value comes last and may have several lines."""
    value = "null" if record.value is None else counted(len(record.value), "byte")
    lines = [
        f"location: {record.topic}/{record.partition}/{record.offset}",
        f"time: {time_text(record.timestamp)}",
        f"key: {_text(record.key)}",
        "headers:",
        *(f"  {printable(name)}: {_text(content)}" for name, content in record.headers),
        f"value: {value}",
    ]
    if record.value:
        lines.append(printable(_decoded(record.value), keep="\n\t"))
    return "\n".join(lines)


def replay_line(replay: Replay, *, dry_run: bool) -> str:
    """Format the result of a replay as a line."""
    letter = replay.letter
    if replay.skipped:
        return f"{letter.location} skipped: {SKIP_REASONS[replay.skipped]}"
    verb = "would be replayed" if dry_run else "replayed"
    return f"{letter.location} {verb} to {replay.to}, attempt {letter.attempts + 1}"


def _text(content: bytes | None) -> str:
    return "null" if content is None else printable(_decoded(content))


def _decoded(content: bytes) -> str:
    return content.decode(errors="backslashreplace")


def _bytes(letter: DeadLetter) -> int:
    """Return the length of the original value in bytes."""
    length = letter.headers.value_length
    return len(letter.record.value or b"") if length is None else length
