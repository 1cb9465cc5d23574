"""Compare vectors by how well novelty tells the tasks of labelled traces apart.

    PYTHONPATH=tests python -m novelty FILE.jsonl ... --text parts,agent --backend lexical,model

Each file of traces, raw or scored, has its labels beside it, as for ``kp-worker policy evaluate``:
``FILE.labels.jsonl`` with ``id`` and ``group`` (the task), and optionally ``agent`` and ``domain``. Prints
Markdown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knowledgepulse_schemas import ReasoningTrace
from novelty import measures
from novelty.backends import embed
from novelty.measures import Figure, Runs

COLUMNS = [
    "backend, text", "AUC, one agent", "AUC, two agents", "nearest is same task", "of another agent",
    *(f"coverage at {share:.0%} / random" for share in measures.SHARES), "novelty: quartiles", "texts/s",
]  # fmt: skip


@dataclass(frozen=True)
class Corpus:
    """Traces with a label, and their labels."""

    name: str
    traces: list[ReasoningTrace]
    runs: Runs


@dataclass(frozen=True)
class Row:
    """What a backend is worth on a corpus."""

    within: Figure
    across: Figure
    nearest: Figure
    nearest_across: Figure
    coverage: dict[float, measures.Coverage]
    quartiles: list[float]
    rate: float


def read(path: Path) -> Corpus:
    """Read a corpus; traces without a label are left out."""
    labels = {}
    for line in path.with_suffix(".labels.jsonl").read_text().splitlines():
        label = json.loads(line)
        labels[label["id"]] = label
    traces = [ReasoningTrace.model_validate_json(line) for line in path.read_text().split("\n") if line]
    traces = [trace for trace in traces if trace.id in labels]
    of = [labels[trace.id] for trace in traces]
    runs = Runs.of(
        [one["group"] for one in of],
        [one.get("agent", "") for one in of],
        [one.get("domain", "") for one in of],
    )
    return Corpus(path.stem, traces, runs)


def row(corpus: Corpus, backend: str, text: str, cache: Path | None) -> Row:
    """Measure a backend on a corpus."""
    embedded = embed(backend, text, corpus.traces, cache)
    vectors = embedded.vectors.astype(np.float64)
    similarities = vectors @ vectors.T
    coverage, quartiles = measures.coverage(similarities, corpus.runs)
    return Row(
        measures.auc(similarities, corpus.runs, across=False),
        measures.auc(similarities, corpus.runs, across=True),
        measures.nearest(similarities, corpus.runs, across=False),
        measures.nearest(similarities, corpus.runs, across=True),
        coverage, quartiles, embedded.rate,
    )  # fmt: skip


def table(corpus: Corpus, rows: dict[str, Row]) -> Iterator[str]:
    """Yield the Markdown of a corpus."""
    first = next(iter(rows.values())).coverage
    sizes = ", ".join(
        f"{share:.0%} {one.random:.1f} of at most {one.most}" for share, one in first.items()
    )  # fmt: skip
    tasks, agents = len(set(corpus.runs.tasks)), len(set(corpus.runs.agents))
    yield f"### {corpus.name}\n"
    yield f"{len(corpus.traces)} runs, {tasks} tasks, {agents} agents. Tasks covered at random: {sizes}.\n"
    yield f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
    for name, one in rows.items():
        cells = [
            *map(_shown, (one.within, one.across, one.nearest, one.nearest_across)),
            *(_shown(covered.ratio) for covered in one.coverage.values()),
            " ".join(f"{quartile:.2f}" for quartile in one.quartiles), f"{one.rate:.0f}",
        ]  # fmt: skip
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def _shown(figure: Figure) -> str:
    return "" if np.isnan(figure.value) else f"{figure.value:.3f} ({figure.low:.2f} to {figure.high:.2f})"


def worst(rows: dict[str, dict[str, Row]]) -> Iterator[str]:
    """Yield the Markdown of each backend's worst corpus, against random choice and the best backend."""
    measured = {
        "coverage at 25 % / best's": lambda one: one.coverage[0.25].tasks,
        "AUC, one agent / best's": lambda one: one.within.value,
        "AUC, two agents / best's": lambda one: one.across.value,
    }
    columns = ["backend, text", "coverage at 25 % / random", *measured]
    yield f"### Worst corpus\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    for name in next(iter(rows.values())):
        cells = [min((each[name].coverage[0.25].ratio.value, corpus) for corpus, each in rows.items())]
        for value in measured.values():
            shares = [
                (value(each[name]) / max(map(value, each.values())), corpus) for corpus, each in rows.items()
            ]
            cells.append(min((one for one in shares if not np.isnan(one[0])), default=(np.nan, "")))
        yield f"| {name} | {' | '.join(f'{value:.3f} {corpus}' for value, corpus in cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="novelty", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--backend", default="lexical,model", help="names, separated by commas")
    parser.add_argument("--text", default="sdk,agent,parts", help="texts, separated by commas")
    parser.add_argument("--cache", type=Path, help="a folder that keeps the vectors of a model")
    arguments = parser.parse_args()
    rows: dict[str, dict[str, Row]] = {}
    for path in arguments.files:
        corpus = read(path)
        each = itertools.product(arguments.backend.split(","), arguments.text.split(","))
        rows[corpus.name] = {
            f"{backend}, {text}": row(corpus, backend, text, arguments.cache) for backend, text in each
        }
        sys.stdout.write("\n".join(table(corpus, rows[corpus.name])) + "\n")
        sys.stdout.flush()
    if len(rows) > 1:
        sys.stdout.write("\n".join(worst(rows)) + "\n")


if __name__ == "__main__":
    main()
