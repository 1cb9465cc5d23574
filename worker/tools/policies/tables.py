"""Terminal tables of the reports."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rich.table import Table

from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.scoring.flips import ROUTES, Rescored
from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.policies.advice import HOLDING
from knowledgepulse_worker.tools.policies.auc import CHANCE
from knowledgepulse_worker.tools.policies.embedders import described
from knowledgepulse_worker.tools.policies.evaluate import DomainEvaluation, Evaluation
from knowledgepulse_worker.tools.policies.intervals import Estimate, with_interval
from knowledgepulse_worker.tools.policies.labelled import LEAK_AGREEMENT
from knowledgepulse_worker.tools.policies.output import DIMENSION_TITLES, new_table
from knowledgepulse_worker.tools.policies.tune import DomainTuning, Tuning, effect
from knowledgepulse_worker.tools.policies.verdict import verdict

SDK_RETRIEVAL, SDK_SEARCH = 0.80, 0.75
"""The lowest scores that the SDK's retrieval and search ask for by default."""

DETAILS = 10
"""Maximum number of flips listed one by one."""


def policy_table(policy: Policy) -> Table:
    """Return a table of thresholds and weights by domain."""
    table = new_table("domain", "threshold", *DIMENSION_TITLES)
    for profile in policy.profiles.values():
        weights = (repr(weight) for _, weight in profile.weights)
        table.add_row(profile.domain, repr(profile.threshold), *weights)
    return table


def tuning_tables(tuning: Tuning) -> Iterator[Table | str]:
    """Yield the report of a tuning, with 95 % intervals."""
    domains = list(tuning.domains.values())
    yield f"policy {tuning.policy.digest}; 95 % intervals in parentheses"
    yield f"embedder: {described(tuning.embedders)}"
    if tuning.withheld:
        yield f"without {tuning.withheld} traces that the policy withholds whatever their score"
    yield ""
    yield _scores(domains)
    yield ""
    yield f"The threshold that lets {tuning.target:.1%} of a domain's traces pass"
    yield _proposals(domains)
    yield ""
    yield "Share that passes, by threshold"
    yield _grid(domains)
    for one in domains:
        yield from _notes(one)


def rescored_tables(rescored: Rescored) -> Iterator[Table | str]:
    """Yield the report of a rescoring."""
    yield f"policy {rescored.policy.digest}: {rescored.traces} traces, {rescored.rescored} with a new score"
    table = new_table("domain", *(f"{before} → {after}" for before, after in ROUTES))
    for domain, routes in sorted(rescored.routes.items()):
        table.add_row(domain, *(str(routes[route]) for route in ROUTES))
    yield table
    for flip in islice(rescored.flips, DETAILS):
        before, after = flip.before, flip.after
        yield (
            f"flip: {printable(flip.id)} {before.decision} → {after.decision}, "
            f"score {before.quality_score:.4f} → {after.quality_score:.4f}"
        )
    if len(rescored.flips) > DETAILS:
        yield f"and {len(rescored.flips) - DETAILS} more; --json lists them all"


def evaluation_tables(evaluation: Evaluation) -> Iterator[Table | str]:
    """Yield the report of an evaluation, with warnings."""
    domains = list(evaluation.domains.values())
    yield f"policy {evaluation.policy.digest}; 95 % intervals in parentheses, from resampling whole groups"
    yield "labels: " + ", ".join(
        f"{count} from {printable(source)}" for source, count in evaluation.sources.items()
    )
    if evaluation.unmatched:
        yield f"{evaluation.unmatched} labels match none of the traces"
    if evaluation.unlabelled:
        yield f"{evaluation.unlabelled} traces have no label"
    yield ""
    yield "AUC: how often a trace worth keeping has a higher value than another trace (0.5 is chance)"
    yield _aucs(domains)
    for one in domains:
        yield from _warnings(one)
    for one in domains:
        if one.score is None:
            continue
        yield ""
        yield f"{one.domain}: precision and recall by threshold"
        yield _operating(one, evaluation.precision)
    if any(one.advice for one in domains):
        yield ""
        yield "Advice, no part of the score: the AUC of features, and within groups"
        yield _advice([one for one in domains if one.advice])
    yield ""
    for one in domains:
        yield from verdict(one, evaluation.precision)


def percent(estimate: Estimate) -> str:
    """Format a share and its interval in percent."""
    return f"{estimate.value:.1%} ({100 * estimate.low:.1f}-{100 * estimate.high:.1f})"


def _scores(domains: list[DomainTuning]) -> Table:
    table = new_table(
        "domain", "traces", "lowest", "5 %", "median", "90 %", "95 %", "highest", "threshold", "passing"
    )
    for one in domains:
        quantiles = (f"{one.quantiles[q]:.3f}" for q in (0, 0.05, 0.5, 0.9, 0.95, 1))
        table.add_row(
            one.domain, str(one.traces), *quantiles, repr(one.current.threshold), percent(one.current.share)
        )
    return table


def _proposals(domains: list[DomainTuning]) -> Table:
    table = new_table("domain", "threshold", "interval", "passing")
    for one in domains:
        if one.proposal is None:
            table.add_row(one.domain, "-", "-", "-")
            continue
        needed, passing = one.proposal.needed, one.proposal.passing
        table.add_row(
            one.domain, repr(passing.threshold), f"{needed.low:.3f}-{needed.high:.3f}", percent(passing.share)
        )
    return table


def _grid(domains: list[DomainTuning]) -> Table:
    table = new_table("threshold", *(one.domain for one in domains))
    for row in zip(*(one.grid for one in domains), strict=True):
        if any(0 < passing.share.value < 1 for passing in row):
            table.add_row(f"{row[0].threshold:.2f}", *(percent(passing.share) for passing in row))
    return table


def _notes(one: DomainTuning) -> Iterator[str]:
    """Yield what to know of a proposal before it is typed."""
    if one.proposal is None:
        yield f"note: {effect(one)}"
    elif (threshold := one.proposal.passing.threshold) < SDK_RETRIEVAL:
        both = f", and the {SDK_SEARCH:.2f} of its search" if threshold < SDK_SEARCH else ""
        yield (
            f"note: {one.domain}: {threshold!r} is less than the {SDK_RETRIEVAL:.2f} that the SDK's "
            f"retrieval asks for{both}"
        )


def _aucs(domains: list[DomainEvaluation]) -> Table:
    table = new_table("", *(one.domain for one in domains))
    table.add_row("traces", *(str(one.traces) for one in domains))
    table.add_row("worth keeping", *(str(one.kept) for one in domains))
    table.add_row("independent groups", *(str(one.groups) for one in domains))
    table.add_section()
    table.add_row("score", *(with_interval(one.score) for one in domains))
    for name, title in zip(DIMENSIONS, DIMENSION_TITLES, strict=True):
        table.add_row(f"{title} alone", *(with_interval(one.alone.get(name)) for one in domains))
    table.add_section()
    for name, title in zip(DIMENSIONS, DIMENSION_TITLES, strict=True):
        table.add_row(f"score, {title} constant", *(with_interval(one.without.get(name)) for one in domains))
    return table


def _warnings(one: DomainEvaluation) -> Iterator[str]:
    if one.score is None:
        yield f"warning: {one.domain}: all {one.traces} labels are equal, so there is nothing to compare"
        return
    if one.agreement >= LEAK_AGREEMENT:
        yield (
            f"warning: {one.domain}: {one.agreement:.0%} of the labels equal metadata.success, from which "
            "outcome confidence is computed: the score contains the label"
        )
    for leak in one.leaks:
        title = leak.dimension.replace("_", " ")
        yield (
            f"warning: {one.domain}: {title} alone predicts the label (AUC {leak.alone.value:.2f}); with it "
            f"held constant, the score's AUC is {with_interval(leak.rest)}, not {one.score.value:.2f}"
        )
        if leak.rest.low <= CHANCE:
            yield f"warning: {one.domain}: without {title}, the score is no better than chance"


def _operating(one: DomainEvaluation, precision: float) -> Table:
    table = new_table("threshold", "passing", "precision", "recall", "F1", "")
    named = [
        (one.current, "current"),
        (one.best_f1, "best F1"),
        (one.precise, f"best recall at precision {precision:g}"),
    ]
    rows = {row.threshold: row for row in (*one.operating, *(row for row, _ in named)) if row}
    for threshold, row in sorted(rows.items()):
        mark = ", ".join(name for point, name in named if point == row)
        figures = with_interval(row.precision), f"{row.recall:.2f}", f"{row.f1:.2f}"
        table.add_row(repr(threshold), str(row.passing), *figures, mark)
    return table


def _advice(domains: list[DomainEvaluation]) -> Table:
    table = new_table("", *(title for one in domains for title in (one.domain, "within groups")))
    for name in HOLDING:
        cells: list[Estimate | None] = []
        for one in domains:
            found = one.advice.get(name)
            cells += [found.auc, found.within] if found else [None, None]
        table.add_row(name, *map(with_interval, cells))
    return table
