"""The rows' outcomes, stored as JSON and rendered as the table of results.md."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

TABLE = Path(__file__).with_name("results.md")
RESULTS = Path(__file__).with_name("results.json")
_HEAD = (
    "| row | run on | fault | rounds | records in | outputs | repeats | missing | differing | without entry "
    "| novelty recomputed | in flight at the fault: median, least "
    "| seconds to resume: median, longest | besides |"
)


class Outcome(msgspec.Struct, kw_only=True):
    """The outcome of a row.

    Attributes:
        rounds: number of doses.
        records: number of raw records.
        outputs: number of outputs.
        repeats: number of outputs beyond the first of each record.
        missing: number of records without an output.
        unexpected: number of outputs of records that never existed or were aborted.
        differing: number of records whose outputs differ from each other, from the raw record beyond the
            score, or from the audit.
        without_entry: number of records with outputs but without a ledger entry.
        audited: number of records whose novelty the audit recomputed from the ledger's vectors alone.
        wrong: some of the defects.
        resumes: seconds from the end of each fault until each partition had an output again.
        hits: number of records in flight at each fault.
        notes: further figures.
        day: the day of the run; empty if it was a run of 0.2.0, which published without transactions.
    """

    rounds: int
    records: int
    outputs: int
    repeats: int
    missing: int
    unexpected: int = 0
    differing: int
    without_entry: int | None = None
    audited: int
    wrong: list[str] = []
    resumes: list[float] = []
    hits: list[int] = []
    notes: dict[str, Any] = {}
    day: str = ""


def store(row: str, outcome: Outcome) -> None:
    """Store a row's outcome of today, replacing an earlier one."""
    outcomes = load() | {row: replace(outcome, day=time.strftime("%Y-%m-%d"))}
    lines = (f'"{name}": {msgspec.json.encode(stored).decode()}' for name, stored in outcomes.items())
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def load() -> dict[str, Outcome]:
    """Return the stored outcomes by row."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, Outcome]) if RESULTS.exists() else {}


def render(faults: Mapping[str, str]) -> str:
    """Render the stored outcomes as a table, in the order of the faults.

    Args:
        faults: descriptions of the faults by row.
    """
    outcomes = load()
    lines = [_line(row, fault, outcomes[row]) for row, fault in faults.items() if row in outcomes]
    return "\n".join([_HEAD, "|---" * _HEAD.count(" | ") + "|---|", *lines]) + "\n"


def write_table(faults: Mapping[str, str]) -> None:
    """Write the table of results.md."""
    marked = f"<!-- measured: chaos -->\n\n{render(faults)}\n<!-- end -->\n"
    TABLE.write_text(f"# Results of `make chaos`\n\n{marked}", encoding="utf-8")


def _line(row: str, fault: str, outcome: Outcome) -> str:
    hits = f"{statistics.median(outcome.hits):.0f}, {min(outcome.hits)}" if outcome.hits else "-"
    resumes = (
        f"{statistics.median(outcome.resumes):.1f}, {max(outcome.resumes):.1f}" if outcome.resumes else "-"
    )
    notes = "; ".join(f"{name}: {value}" for name, value in outcome.notes.items()) or "-"
    counts = (
        outcome.rounds,
        outcome.records,
        outcome.outputs,
        outcome.repeats,
        outcome.missing,
        outcome.differing,
    )
    is_audited = outcome.without_entry is not None  # otherwise, played before it was
    entries = str(outcome.without_entry) if is_audited else "-"
    day = outcome.day or "0.2.0"
    cells = [f"`{row}`", day, fault, *map(str, counts), entries, str(outcome.audited), hits, resumes, notes]
    return f"| {' | '.join(cells)} |"
