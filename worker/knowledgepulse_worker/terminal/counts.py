"""Numbers of things, as people write them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one: `1 trace`, `1,000 traces`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
