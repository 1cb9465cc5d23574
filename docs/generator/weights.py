"""The table of the reference's weights."""

from __future__ import annotations

from knowledgepulse_worker.policy import REFERENCE_WEIGHTS


def table() -> str:
    """Return a row for each domain."""
    rows = (
        f"| {name} | {w.complexity:.2f} | {w.novelty:.2f} | {w.tool_diversity:.2f} | {w.outcome_confidence:.2f} |"
        for name, w in REFERENCE_WEIGHTS.items()
    )
    head = "| domain | complexity | novelty | tool diversity | outcome confidence |"
    return "\n".join((head, "|---|---|---|---|---|", *rows))
