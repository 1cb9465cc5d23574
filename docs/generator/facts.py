"""The table of the facts that a learned value may weigh."""

from __future__ import annotations

from generator import markdown
from knowledgepulse_worker.scoring import FACTS


def table() -> str:
    """Return a row for each fact."""
    rows = (
        f"| `{name}` | {fact.unit} | {'' if fact.highest is None else f'{fact.highest:g} '}| {fact.reason} |"
        for name, fact in FACTS.items()
    )
    return markdown.table("| fact | unit | highest | why it may help |", rows)
