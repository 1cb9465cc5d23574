"""The table of the states that a worker can be in."""

from __future__ import annotations

from generator import markdown
from knowledgepulse_worker.verdict import State


def table() -> str:
    """Return a row for each state."""
    rows = (f"| {state.words} | {state.meaning} |" for state in State)
    return markdown.table("| state | the worker |", rows)
