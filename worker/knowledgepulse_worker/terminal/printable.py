"""Safe terminal output of untrusted text."""

from __future__ import annotations

from datetime import UTC, datetime

from knowledgepulse_worker.message_text import printable

_MAX_LINES = 50
_MAX_LINE = 1000
"""Characters of a line in a message."""


def printable_line(text: str) -> str:
    """Return untrusted text as a line of a message, with unprintable characters escaped.

    A long line keeps its beginning, which names the place, and its end, which says what is accepted.
    """
    line, half = printable(text), _MAX_LINE // 2
    return line if len(line) <= _MAX_LINE else f"{line[:half]} … {line[-half:]}"


def printable_lines(text: str) -> str:
    """Return the lines of an error, which may quote untrusted text; only the first ones of very many."""
    lines = text.split("\n")
    shown = [printable_line(line) for line in lines[:_MAX_LINES]]
    more = [f"and {len(lines) - _MAX_LINES:,} more lines"] if len(lines) > _MAX_LINES else []
    return "\n".join(shown + more)


def time_text(timestamp_ms: int) -> str:
    """Format a record's timestamp; ``none`` if it has none."""
    if timestamp_ms < 0:
        return "none"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # producers may set any timestamp
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
