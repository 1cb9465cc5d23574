"""Numbers of things and untrusted text, as messages show them."""

from __future__ import annotations

from knowledgepulse_kafka.safe_text import printable

__all__ = ["counted", "printable"]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one: `1 trace`, `1,000 traces`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
