"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def table(head: str, rows: Iterable[str]) -> str:
    """Return a table of a head, such as ``| name | meaning |``, and rows like it."""
    return "\n".join((head, "|---" * (head.count("|") - 1) + "|", *rows))
