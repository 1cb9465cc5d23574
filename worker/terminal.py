"""Text for a terminal, of what others wrote."""

from __future__ import annotations

from datetime import UTC, datetime


def printable(text: str, keep: str = "") -> str:
    """Return the text with everything escaped that a terminal would not show as a character."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text
    )


def time_text(timestamp_ms: int) -> str:
    """Return a record's timestamp; ``none`` where it has none."""
    if timestamp_ms < 0:
        return "none"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # producers may write what they like
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
