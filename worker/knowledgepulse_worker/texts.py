"""Numbers of things and untrusted text, as messages show them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one: `1 trace`, `1,000 traces`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str, keep: str = "") -> str:
    """Escape all unprintable characters except those in ``keep``."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text
    )
