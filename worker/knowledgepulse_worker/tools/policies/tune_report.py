"""The reports of a tuning and of a rescoring."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rich.table import Table

from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.scoring.rescore_report import DECISION_PAIRS, RescoreReport
from knowledgepulse_worker.tools.policies.estimates import Estimate
from knowledgepulse_worker.tools.policies.share_effects import repeats_table
from knowledgepulse_worker.tools.policies.tune import DomainTuning, Tuning, described, effect
from knowledgepulse_worker.tools.terminal.reports import new_table

SDK_RETRIEVAL_SCORE, SDK_SEARCH_SCORE = 0.80, 0.75
"""The lowest scores that the SDK's retrieval and search ask for by default."""

MAX_LISTED_FLIPS = 10
"""Maximum number of flips listed one by one."""

_DOMAINS_OF_A_TABLE = 3
"""Domains whose intervals stand beside each other in 80 columns."""


def tuning_tables(tuning: Tuning) -> Iterator[Table | str]:
    """Yield the report of a tuning, with 95% intervals."""
    domains = list(tuning.domains.values())
    yield f"policy {tuning.policy}; 95% intervals in parentheses"
    yield f"embedder: {described(tuning.embedders)}"
    if tuning.withheld:
        yield f"without {counted(tuning.withheld, 'trace')} that the policy withholds"
    yield ""
    yield _scores(domains)
    yield ""
    yield "Share that passes by the policy"
    yield _current(domains)
    yield ""
    yield f"The threshold that lets {tuning.target:.1%} of a domain's traces pass"
    yield _proposals(domains)
    yield ""
    yield "Share that passes, by threshold"
    for first in range(0, len(domains), _DOMAINS_OF_A_TABLE):
        yield _grid(domains[first : first + _DOMAINS_OF_A_TABLE])
    yield ""
    yield "What a share would have let pass in the order of the traces, of all and by hour"
    yield _shares(domains)
    yield ""
    yield "Traces that a lowest novelty (min_novelty) would withhold"
    yield repeats_table({domain.domain: domain.repeats for domain in domains})
    for domain in domains:
        yield from _notes(domain)


def rescored_tables(rescored: RescoreReport) -> Iterator[Table | str]:
    """Yield the report of a rescoring."""
    counts = f"{counted(rescored.traces, 'trace')}, {rescored.rescored:,} with a new score"
    yield f"policy {rescored.policy.digest}: {counts}"
    table = new_table("domain", *(f"{before} → {after}" for before, after in DECISION_PAIRS))
    for domain, routes in sorted(rescored.routes.items()):
        table.add_row(domain, *(f"{routes[route]:,}" for route in DECISION_PAIRS))
    yield table
    for flip in islice(rescored.flips, MAX_LISTED_FLIPS):
        before, after = flip.before, flip.after
        yield (
            f"flip: {printable(flip.id)} {before.decision} → {after.decision}, "
            f"{_change('score', before.quality_score, after.quality_score)}, "
            f"{_change('threshold', before.threshold, after.threshold)}"
        )
    if len(rescored.flips) > MAX_LISTED_FLIPS:
        yield f"and {len(rescored.flips) - MAX_LISTED_FLIPS:,} more; --json lists them all"


def _change(name: str, before: float, after: float) -> str:
    """Return a number before and after, or once if it is the same."""
    told = f"{name} {before:.4f}"
    return told if before == after else f"{told} → {after:.4f}"


def _percent(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} ({100 * estimate.low:.1f}-{100 * estimate.high:.1f})"


def _scores(domains: list[DomainTuning]) -> Table:
    shown = {"lowest": 0, "5%": 0.05, "median": 0.5, "90%": 0.9, "95%": 0.95, "highest": 1}
    table = new_table("domain", "traces", *shown)
    for domain in domains:
        quantiles = (f"{domain.quantiles[q]:.3f}" for q in shown.values())
        table.add_row(domain.domain, f"{domain.traces:,}", *quantiles)
    return table


def _current(domains: list[DomainTuning]) -> Table:
    table = new_table("domain", "threshold", "passing")
    for domain in domains:
        rule = repr(domain.current.threshold) if domain.share is None else f"share {domain.share:g}"
        table.add_row(domain.domain, rule, _percent(domain.current.share))
    return table


def _proposals(domains: list[DomainTuning]) -> Table:
    table = new_table("domain", "threshold", "interval", "passing")
    for domain in domains:
        if domain.proposal is None:
            table.add_row(domain.domain, "-", "-", "-")
            continue
        needed, passing = domain.proposal.needed, domain.proposal.passing
        interval = f"{needed.low:.3f}-{needed.high:.3f}"
        table.add_row(domain.domain, repr(passing.threshold), interval, _percent(passing.share))
    return table


def _grid(domains: list[DomainTuning]) -> Table:
    table = new_table("threshold", *(domain.domain for domain in domains))
    for row in zip(*(domain.grid for domain in domains), strict=True):
        if any(0 < passing.share.value < 1 for passing in row):
            table.add_row(f"{row[0].threshold:.2f}", *(_percent(passing.share) for passing in row))
    return table


def _shares(domains: list[DomainTuning]) -> Table:
    table = new_table("domain", "share", "traces", "passing", "lowest hour", "highest hour")
    for domain in domains:
        for row in domain.shares:
            if not row.traces:
                continue
            hours = ("-" if hour is None else f"{hour:.1%}" for hour in (row.lowest, row.highest))
            passing = f"{row.passing / row.traces:.1%}"
            table.add_row(domain.domain, f"{row.share:g}", f"{row.traces:,}", passing, *hours)
    return table


def _notes(domain: DomainTuning) -> Iterator[str]:
    """Yield notes to read before a proposal is adopted."""
    if domain.share is not None:
        return
    if domain.has_few:
        yield f"note: {effect(domain)}"
    elif domain.proposal and (threshold := domain.proposal.passing.threshold) < SDK_RETRIEVAL_SCORE:
        both = f", and the {SDK_SEARCH_SCORE:.2f} of its search" if threshold < SDK_SEARCH_SCORE else ""
        yield (
            f"note: {domain.domain}: {threshold!r} is less than the {SDK_RETRIEVAL_SCORE:.2f} that the SDK's "
            f"retrieval asks for{both}"
        )
