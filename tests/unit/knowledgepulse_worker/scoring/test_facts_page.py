"""The page of the facts is that of the code."""

from pathlib import Path

from knowledgepulse_worker.scoring import FACTS

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "learned.md"


def test_the_page_lists_every_fact_with_unit_range_and_reason():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert rows == [
        f"| `{name}` | {fact.unit} | {'' if fact.highest is None else f'{fact.highest:g} '}| {fact.reason} |"
        for name, fact in FACTS.items()
    ]
