"""The table of the releases of Kafka that the tests ran on."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "tests" / "data" / "kafka-releases.json"
_PARTS = ("contract", "integration", "chaos")
_OUTCOMES = ("passed", "failed", "skipped")


def table() -> str:
    """Return a row for each release."""
    releases = json.loads(RESULTS.read_text())
    head = f"| Apache Kafka | {' | '.join(_PARTS)} |", "|---" * (len(_PARTS) + 1) + "|"
    order = sorted(releases, key=lambda release: [int(number) for number in release.split(".")])
    return "\n".join((*head, *(_row(release, releases[release]) for release in order)))


def _row(release: str, parts: dict[str, dict[str, int]]) -> str:
    return f"| {release} | {' | '.join(_cell(parts.get(part, {})) for part in _PARTS)} |"


def _cell(found: dict[str, int]) -> str:
    return (
        ", ".join(f"{found[outcome]} {outcome}" for outcome in _OUTCOMES if found.get(outcome)) or "not run"
    )
