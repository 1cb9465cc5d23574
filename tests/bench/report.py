"""Report the results as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.measure import MIN_SAMPLES, Figure, Section

RESULTS = "results.json"


def as_json(header: Mapping[str, str], sections: Sequence[Section]) -> dict[str, Any]:
    """Return the header and the summaries of all sections as plain JSON; ratios and rates by round."""
    return {
        "header": dict(header),
        "sections": [
            {
                "name": section.name,
                "title": section.title,
                "seconds": round(section.seconds, 1),
                "notes": section.notes,
                "figures": [figure.summary() for figure in section.figures],
            }
            for section in sections
        ],
    }


def write(folder: Path, header: Mapping[str, str], sections: Sequence[Section]) -> None:
    """Write the results so far."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS).write_text(json.dumps(as_json(header, sections), indent=1) + "\n")


def show(console: Console, header: Mapping[str, str], sections: Sequence[Section]) -> None:
    """Print the header and one table."""
    top = Table.grid(padding=(0, 2))
    for name, value in header.items():
        top.add_row(escape(name), escape(value))
    console.print(top)
    table = Table()
    for column in ("what", "median", "least", "most", "p90", "p99", "n", "unit", "to reach"):
        table.add_column(column, justify="left" if column in ("what", "unit", "to reach") else "right")
    for section in sections:
        table.add_section()
        table.add_row(f"[bold]{escape(section.title)}[/] ({section.name}, {section.seconds:.0f} s)")
        for figure in section.figures:
            table.add_row(*map(escape, row(figure)))
    console.print(table)
    for section in sections:
        for note in section.notes:
            console.print(f"{section.name}: {note}", markup=False)
    console.print(
        f"n: rounds, of ratios and rates; samples, of durations, whose median is p50. "
        f"A p99 requires {MIN_SAMPLES} samples.",
        style="dim",
    )


def row(figure: Figure) -> list[str]:
    """Return the table cells of a figure."""
    summary = figure.summary()
    return [
        f"  {figure.what}",
        *(number(summary[name]) for name in ("median", "least", "most")),
        number(summary.get("p90")),
        number(summary.get("p99")),
        str(summary["count"]),
        figure.unit,
        figure.reach,
    ]


def number(value: float | None) -> str:
    """Format a value with three or four digits; a dash for None."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
