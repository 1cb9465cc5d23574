"""The tables of programs that were run beside a worker."""

from __future__ import annotations

from generator import markdown
from interoperability.results import kept


def table(part: str) -> str:
    """Return a row for each case of a part."""
    rows = (f"| {case['program']} | {case['what']} | {case['seen']} |" for case in kept()[part]["cases"])
    return markdown.table("| program | given | what it does |", rows)
