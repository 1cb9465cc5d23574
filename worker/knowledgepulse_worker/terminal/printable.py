"""Safe terminal output of untrusted text."""

from __future__ import annotations

from datetime import UTC, datetime


def printable(text: str, keep: str = "") -> str:
    """Escape all unprintable characters except those in ``keep``."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text
    )


def time_text(timestamp_ms: int) -> str:
    """Format a record's timestamp; ``none`` if it has none."""
    if timestamp_ms < 0:
        return "none"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # producers may set any timestamp
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
