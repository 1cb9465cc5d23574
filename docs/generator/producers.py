"""The tables of the agents that ran, and of how their runs are converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from generator import markdown

RUNNERS = Path(__file__).parents[2] / "tests" / "producers" / "runners"
_ENTRY = dict[str, Any]


def spans() -> str:
    """Return a row for each program whose spans were converted."""
    return _table(of_spans=True)


def documents() -> str:
    """Return a row for each program whose sessions, streams or messages were converted."""
    return _table(of_spans=False)


def _table(*, of_spans: bool) -> str:
    files = RUNNERS.glob("*/verdicts.json")
    entries = (entry for file in files for entry in json.loads(file.read_text()).values())
    chosen = sorted(
        (each for each in entries if each["spans"] is of_spans), key=lambda each: each["label"].lower()
    )
    return markdown.table("| program | right | otherwise |", map(_row, chosen))


def _row(entry: _ENTRY) -> str:
    runs = entry["runs"].items()
    right = ", ".join(_named(run) for run, verdict in runs if verdict["verdict"] == "right")
    others = [_other(run, verdict) for run, verdict in runs if verdict["verdict"] != "right"]
    if unrecorded := ", ".join(_named(run) for run, verdict in runs if "unrecorded" in verdict):
        others.append(f"not all texts are recorded: {unrecorded}")
    return f"| {entry['label']} | {right} | {'; '.join(others)} |"


def _other(run: str, verdict: _ENTRY) -> str:
    differs = ", ".join(verdict.get("differs", ()))
    untold = "".join(f": not recorded {reason}" for reason in verdict.get("untold", ()))
    return f"{_named(run)}: {verdict['verdict']}" + (f" ({differs}{untold})" if differs else "")


def _named(run: str) -> str:
    return run.replace("_", " ")
