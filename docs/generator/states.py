"""The table of the states that a worker can be in."""

from __future__ import annotations

from knowledgepulse_worker.verdict import State


def table() -> str:
    """Return a row for each state."""
    rows = (f"| {state.words} | {state.meaning} |" for state in State)
    return "\n".join(("| state | the worker |", "|---|---|", *rows))
