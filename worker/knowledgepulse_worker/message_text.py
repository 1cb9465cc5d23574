"""Numbers of things and untrusted text, as messages show them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from knowledgepulse_kafka.safe_text import printable

__all__ = ["counted", "printable"]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one: `1 trace`, `1,000 traces`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question with the most similar of some names, which ends with a space; empty without one."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean {close[0]}? " if close else ""
