"""The verdicts of all producers: kept as JSON, printed as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from producers.comparison import Verdict
from producers.producer import SPANS, Producer

FILE = "verdicts.json"
"""In each runner's folder."""


def keep(producer: Producer, run: str, verdict: Verdict) -> None:
    """Write a verdict to the runner's file, in place of the last one of the same producer and run."""
    file = producer.folder / FILE
    kept = json.loads(file.read_text()) if file.exists() else {}
    entry = kept.get(producer.name, {})
    runs = entry.get("runs", {}) if entry.get("label") == producer.label else {}
    own = {
        "verdict": verdict.verdict,
        "differs": verdict.differs,
        "silently": verdict.silently_wrong,
        "untold": verdict.untold,
        "unrecorded": bool(set(verdict.unrecorded) - set(verdict.untold)),
    }
    runs[run] = {name: value for name, value in own.items() if value}
    kept[producer.name] = {
        "label": producer.label,
        "language": producer.language,
        "spans": producer.document == SPANS,
        "runs": {each: runs[each] for each in producer.runs if each in runs},
    }
    file.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")


def counts(chosen: Iterable[tuple[Producer, str]]) -> str:
    """Return how many of the last verdicts are which, for each program, for each run, and of all."""
    found: dict[str, Counter[str]] = {}
    for producer, run in chosen:
        file = producer.folder / FILE
        entry = json.loads(file.read_text()).get(producer.name, {}) if file.exists() else {}
        if (kept := entry.get("runs", {}).get(run)) is not None:
            told = f"{kept['verdict']}, without a word" if kept.get("silently") else kept["verdict"]
            for row in (producer.label, f"run {run}", "all"):
                found.setdefault(row, Counter())[told] += 1
    rows = sorted(found.items(), key=lambda row: (row[0] == "all", row[0].startswith("run "), row[0]))
    return "\n".join(
        f"{name}: {', '.join(f'{number} {verdict}' for verdict, number in sorted(told.items()))}"
        for name, told in rows
    )


def table(verdicts: dict[tuple[Producer, str], Verdict]) -> str:
    """Return a line for each run, and how many are right."""
    rows = [(producer.label, run, verdict.words) for (producer, run), verdict in verdicts.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{label:<{widths[0]}}  {run:<{widths[1]}}  {words}" for label, run, words in rows]
    return "\n".join([*lines, _sums(list(verdicts.values()))])


def _sums(verdicts: list[Verdict]) -> str:
    counts: dict[str, Any] = {}
    for verdict in verdicts:
        counts[verdict.verdict] = counts.get(verdict.verdict, 0) + 1
    silently = sum(verdict.silently_wrong for verdict in verdicts)
    return (
        f"{', '.join(f'{count} {word}' for word, count in counts.items())}; {silently} wrong without a word"
    )
