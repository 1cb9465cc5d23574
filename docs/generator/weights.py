"""The table of the reference's weights."""

from __future__ import annotations

from generator import markdown
from knowledgepulse_worker.policy import REFERENCE_WEIGHTS


def table() -> str:
    """Return a row for each domain."""
    rows = (
        f"| {name} | {' | '.join(f'{weight:.2f}' for _, weight in weights)} |"
        for name, weights in REFERENCE_WEIGHTS.items()
    )
    return markdown.table("| domain | complexity | novelty | tool diversity | outcome confidence |", rows)
