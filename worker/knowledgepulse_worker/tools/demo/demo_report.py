"""What the demo prints of its results."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from knowledgepulse_worker.policy import ROUTES, Policy
from knowledgepulse_worker.scoring import ScoredRecord, decide
from knowledgepulse_worker.scoring.explanation import explain_score
from knowledgepulse_worker.settings import Settings

THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.75)

_BAR_CHARACTERS = 40
_OBJECTIVE_CHARACTERS = 60


@dataclass
class Results:
    """The contents of the output topics, and the duration of the run in seconds."""

    outcomes: Counter[str]
    scored: list[ScoredRecord] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def scores(self) -> list[float]:
        """The quality scores."""
        return [record.score.quality_score for record in self.scored]


def line_of(record: ScoredRecord) -> str:
    """Return a line with a trace's score and the beginning of its objective."""
    return f"  [green]{record.score.quality_score:.2f}[/]  {escape(_objective(record))}"


def summarise(console: Console, results: Results, status: dict[str, Any], settings: Settings) -> None:
    """Print how many traces pass, how the scores are distributed, and what scoring took."""
    scores, outcomes = results.scores, ", ".join(f"{n} {outcome}" for outcome, n in results.outcomes.items())
    kept = sum(results.outcomes[route.name] for route in ROUTES.values() if route.kept)
    passing = kept / results.outcomes.total()
    console.rule("[bold]results")
    console.print(f"[bold]{passing:.0%} of {results.outcomes.total()} traces pass[/]: {outcomes}.")
    console.print()
    console.print(_histogram(results.scored))
    console.print()
    console.print(_passing(scores))
    console.print()
    if results.scored:
        console.print(_best(results.scored, settings.policy))
    console.print(" ".join(_times(status, settings.limits.budget, len(scores))))
    console.print(f"All took {results.seconds:.0f} s.")


def _times(status: dict[str, Any], budget: float, count: int) -> Iterator[str]:
    """Yield sentences on what scoring took, against what a text takes while nothing else computes."""
    scoring, alone = status["latency"]["scoring"], status["worker"]["embedding_pass_seconds"]
    late = f"{scoring['over_budget'] or 'none'} of {count} took longer than the budget of {_ms(budget)}"
    yield f"A score took {_ms(scoring['p50'])} (median) to {_ms(scoring['p99'])} (p99); {late}."
    if alone is not None:
        takes = f"On this processor, a text that fills the model's window takes {_ms(alone)}"
        yield (
            f"{takes}, too long for the budget; `kp-worker demo --backend lexical` needs no model."
            if alone > budget
            else f"{takes} if nothing else uses the cores."
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"


def _objective(record: ScoredRecord) -> str:
    objective = " ".join(record.content.objective.split()) if record.content else record.id
    return (
        objective if len(objective) <= _OBJECTIVE_CHARACTERS else objective[: _OBJECTIVE_CHARACTERS - 1] + "…"
    )


def _best(scored: Sequence[ScoredRecord], policy: Policy) -> str:
    best = max(scored, key=lambda record: record.score.quality_score)
    text = f"The best, with {best.score.quality_score:.2f}, is “{escape(_objective(best))}”"
    explanation = explain_score(best, policy)
    if explanation is None:  # the policy was edited meanwhile
        return f"{text}."
    first, second, *_ = sorted(explanation.parts, key=lambda part: part.points, reverse=True)
    reasons = (
        f"{part.dimension.replace('_', ' ')} ({part.value:.2f} × {part.weight:g})" for part in (first, second)
    )
    return f"{text}, most of all for its {' and '.join(reasons)}."


def _histogram(scored: Sequence[ScoredRecord]) -> Table:
    table = Table(title="quality_score: [green]passes[/], [cyan]does not[/]", title_justify="left", box=None)
    table.add_column("from", justify="right")
    table.add_column("")
    table.add_column("traces", justify="right")
    table.add_column("pass", justify="right")
    bins = Counter(_bin(record) for record in scored)
    passing = Counter(_bin(record) for record in scored if decide(record.score).kept)
    most = max(bins.values(), default=1)
    for number in range(min(bins, default=0), max(bins, default=-1) + 1):
        width, green = (round(counts[number] / most * _BAR_CHARACTERS) for counts in (bins, passing))
        bar = f"[green]{'█' * green}[/][cyan]{'█' * (width - green)}[/]"
        table.add_row(f"{number / 20:.2f}", bar, str(bins[number]), str(passing[number]))
    return table


def _bin(record: ScoredRecord) -> int:
    return min(int(record.score.quality_score * 20), 19)


def _passing(scores: Sequence[float]) -> Table:
    table = Table(title="share that would pass by a threshold", title_justify="left", box=None)
    for threshold in THRESHOLDS:
        table.add_column(f"at {threshold:g}", justify="right")
    count = max(1, len(scores))
    table.add_row(*(f"{sum(score >= threshold for score in scores) / count:.0%}" for threshold in THRESHOLDS))
    return table


def what_next(console: Console, status_page: str, *, stay: bool) -> None:
    """Print commands to go on with."""
    console.rule("[bold]next steps")
    command = (
        "kp-worker" if shutil.which("kp-worker") else sys.argv[0]
    )  # in a virtual environment it has a path
    if stay:
        first = status_page, "open the status page, and try other thresholds"
    else:
        first = f"{command} demo --stay", "keep the worker and its status page running"
    steps = (
        first,
        (f"{command} config --init", "write a first worker.toml; choose policy.share in it"),
        (f"{command} score traces.jsonl", "score your own traces, without a broker"),
        ("docker compose up", "start Kafka, a worker, Prometheus and Grafana"),
    )
    for step, purpose in steps:
        console.print(step, markup=False, soft_wrap=True)  # in one piece, to be copied
        console.print(f"  {purpose}", style="dim")
