"""The table of the releases of Kafka that the tests ran on."""

from __future__ import annotations

import json
from pathlib import Path

from generator import markdown

RESULTS = Path(__file__).parents[2] / "tests" / "data" / "kafka-releases.json"
_PARTS = ("contract", "integration", "chaos")
_OUTCOMES = ("passed", "failed", "skipped")


def table() -> str:
    """Return a row for each release."""
    releases = json.loads(RESULTS.read_text())
    rows = []
    for release in sorted(releases, key=lambda release: [int(number) for number in release.split(".")]):
        found = [releases[release].get(part, {}) for part in _PARTS]
        told = (", ".join(f"{part[name]} {name}" for name in _OUTCOMES if part.get(name)) for part in found)
        rows.append(f"| {release} | {' | '.join(cell or 'not run' for cell in told)} |")
    return markdown.table(f"| Apache Kafka | {' | '.join(_PARTS)} |", rows)
