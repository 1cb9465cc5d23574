"""The reports of an evaluation and of a comparison; the verdicts come first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from knowledgepulse_curator.fitting.evaluate import (
    FIGURES,
    DomainEvaluation,
    Evaluation,
    Figures,
    LeftOutLabels,
    OperatingPoint,
    PolicyComparison,
)
from knowledgepulse_curator.fitting.labelled_traces import LEAK_AGREEMENT
from knowledgepulse_curator.labels.labels import MIN_SUPPORT
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.policy import DIMENSIONS
from knowledgepulse_worker.tools.policies.estimates import CHANCE_AUC, in_pairs, signed, with_interval
from knowledgepulse_worker.tools.policies.policy_output import DIMENSION_TITLES
from knowledgepulse_worker.tools.policies.share_effects import repeats_table
from knowledgepulse_worker.tools.terminal.reports import new_table


def verdicts(evaluation: Evaluation) -> Iterator[str]:
    """Yield a sentence for each domain."""
    for name, left_out in evaluation.fitted.items():
        if name not in evaluation.domains:
            told = f"none, as its learned value was fitted to all {left_out.of:,} labels"
            yield f"verdict: {name}: {told}: {_recorded(left_out)}"
    for domain in evaluation.domains.values():
        yield verdict(domain)
        if domain.fair is not None and domain.verdict != "too few labels":
            yield f"verdict: {domain.domain}: {in_pairs('the score', domain.fair)}"


def changes(compared: Sequence[PolicyComparison]) -> Iterator[str]:
    """Yield a sentence for each difference between policies."""
    for comparison in compared:
        left_out = f"{comparison.left_out:,} labels are left out, as a learned value was fitted to them"
        if not comparison.policies:
            yield f"change: {comparison.domain}: not compared: {left_out}, and too few remain"
        for digest, difference in comparison.differences.items():
            told = f"; {left_out}" if comparison.left_out else ""
            yield f"change: {comparison.domain}: {_sentence(digest, difference)}{told}"


def evaluation_tables(evaluation: Evaluation) -> Iterator[Table | str]:
    """Yield the figures of an evaluation, with warnings."""
    domains = list(evaluation.domains.values())
    yield f"policy {evaluation.policy}; 95% intervals in parentheses, from resampling whole groups"
    yield "labels: " + ", ".join(
        f"{count:,} from {printable(source)}" for source, count in evaluation.sources.items()
    )
    if evaluation.unmatched:
        yield f"labels that match no trace: {evaluation.unmatched:,}"
    if evaluation.unlabelled:
        yield f"traces without a label: {evaluation.unlabelled:,}"
    for name, left_out in evaluation.fitted.items():
        yield from _fitted(name, left_out)
    if not domains:
        return
    yield ""
    yield "AUC: how often a trace worth keeping has a higher value than another trace (0.5 is chance)"
    yield _aucs(domains)
    yield from (
        f"{domain.domain}: traces by how their group was found: {domain.how_grouped}" for domain in domains
    )
    for domain in domains:
        yield from _warnings(domain)
    for domain in domains:
        if domain.score is None:
            continue
        yield ""
        yield f"{domain.domain}: precision and recall by threshold"
        yield _operating(domain)
        if domain.share is not None:
            yield f"by the policy's share: {_worth(domain.share, domain.traces)}"
    yield ""
    yield "Traces that a lowest novelty (min_novelty) would withhold, and how many of them are worth keeping"
    yield repeats_table({domain.domain: domain.repeats for domain in domains})


def _fitted(name: str, left_out: LeftOutLabels) -> Iterator[str]:
    if left_out.labels is None:
        yield (
            f"warning: {name}: the policy does not record to which traces its learned value was fitted; if "
            f"they are among these, the figures flatter: {_recorded(left_out)}"
        )
    elif left_out.labels:
        yield (
            f"{name}: left out {left_out.labels:,} of {counted(left_out.of, 'label')}, to which the learned "
            f"value was fitted: {_recorded(left_out)}"
        )


def _recorded(left_out: LeftOutLabels) -> str:
    return (
        f"AUC {with_interval(left_out.auc)} on traces that it was not fitted to, at its fit on "
        f"{printable(left_out.on)}"
    )


def _aucs(domains: list[DomainEvaluation]) -> Table:
    table = new_table("", *(domain.domain for domain in domains))
    table.add_row("traces", *(f"{domain.traces:,}" for domain in domains))
    table.add_row("worth keeping", *(f"{domain.kept:,}" for domain in domains))
    table.add_row("independent groups", *(f"{domain.groups:,}" for domain in domains))
    table.add_section()
    table.add_row("score", *(with_interval(domain.score) for domain in domains))
    for label, figures in (("{} alone", "alone"), ("score, {} constant", "without")):
        for name, title in zip(DIMENSIONS, DIMENSION_TITLES, strict=True):
            aucs = (getattr(domain, figures).get(name) for domain in domains)
            table.add_row(label.format(title), *map(with_interval, aucs))
        table.add_section()
    table.add_row(
        "length alone", *(with_interval(domain.length.alone if domain.length else None) for domain in domains)
    )
    return table


def _warnings(domain: DomainEvaluation) -> Iterator[str]:
    if domain.score is None:
        labels = "there is one label" if domain.traces == 1 else f"all {domain.traces:,} labels are equal"
        yield f"warning: {domain.domain}: {labels}, so there is nothing to compare"
        return
    if domain.of_outcomes:
        yield (
            f"warning: {domain.domain}: {domain.of_outcomes:,} of the labels are the traces' own outcomes, "
            "which the score multiplies by the confidence: the score contains the label"
        )
    elif domain.agreement >= LEAK_AGREEMENT:
        yield (
            f"warning: {domain.domain}: {domain.agreement:.0%} of the labels equal metadata.success, from "
            "which outcome confidence is computed: the score contains the label"
        )
    for leak in domain.leaks:
        title, alone, rest = leak.replace("_", " "), domain.alone[leak].value, domain.without[leak]
        yield (
            f"warning: {domain.domain}: {title} alone predicts the label (AUC {alone:.2f}); with it "
            f"held constant, the score's AUC is {with_interval(rest)}, not {domain.score.value:.2f}"
        )
        if rest.low <= CHANCE_AUC:
            yield f"warning: {domain.domain}: without {title}, the score is no better than chance"


def _operating(domain: DomainEvaluation) -> Table:
    table = new_table("threshold", "passing", "precision", "recall", "F1", "")
    named = [
        (domain.current, "current"),
        (domain.best_f1, "best F1"),
    ]
    rows = {row.threshold: row for row in (*domain.operating, *(row for row, _ in named)) if row}
    for threshold, row in sorted(rows.items()):
        mark = ", ".join(name for point, name in named if point == row)
        figures = with_interval(row.precision), f"{row.recall:.2f}", f"{row.f1:.2f}"
        table.add_row(repr(threshold), str(row.passing), *figures, mark)
    return table


def verdict(domain: DomainEvaluation) -> str:
    """Return a domain's verdict on the score and the thresholds."""
    return f"verdict: {domain.domain}: {_score(domain)}{_proposals(domain)}"


def _score(domain: DomainEvaluation) -> str:
    if domain.fair is None or domain.verdict == "too few labels":
        return domain.too_few(MIN_SUPPORT, MIN_SUPPORT)
    subject = (
        "the score" if domain.fair == domain.score else "the score contains the label; without it, the score"
    )
    meaning = {
        "tells apart": "tells these labels apart",
        "does not tell apart": "does not tell these labels apart",
        "points the wrong way": "points the wrong way, as traces worth keeping score lower",
    }[domain.verdict]
    length = f", {domain.length}" if domain.length else ""
    return f"{subject} {meaning}: AUC {with_interval(domain.fair)}, where chance is 0.50{length}"


def _proposals(domain: DomainEvaluation) -> str:
    base = f"; of all traces, {domain.kept / domain.traces:.2f} are worth keeping"
    if domain.verdict != "tells apart":
        return f"; no threshold is proposed{base}"
    if domain.best_f1 is None:
        return f"; no threshold with {MIN_SUPPORT} traces on each side has the best F1{base}"
    return f"; for the best F1, {_worth(domain.best_f1, domain.traces)}{base}"


def _worth(point: OperatingPoint, traces: int) -> str:
    good = with_interval(point.precision)
    return f"{point.threshold!r} passes {point.passing:,} of {traces:,}, of which {good} are worth keeping"


def comparison_tables(compared: Sequence[PolicyComparison]) -> Iterator[Table | str]:
    """Yield the figures of each domain."""
    for comparison in compared:
        if not comparison.policies:
            continue
        held = (
            "; AUC with outcome confidence constant, as the labels equal metadata.success"
            if comparison.held
            else ""
        )
        yield ""
        yield f"{comparison.domain}: the policies on the same {counted(comparison.traces, 'trace')}{held}"
        table = new_table("policy", *FIGURES)
        for digest, figures in comparison.policies.items():
            table.add_row(digest, *(with_interval(figure) for figure in figures.values()))
        for digest, figures in comparison.differences.items():
            table.add_row(f"{digest} - first", *(signed(figure) for figure in figures.values()))
        yield table


def _sentence(digest: str, difference: Figures) -> str:
    known = [(name, interval) for name in FIGURES[:3] if (interval := difference[name])]
    better = ", ".join(name for name, interval in known if interval.low > 0)
    worse = ", ".join(name for name, interval in known if interval.high < 0)
    parts = [f"{how} {names}" for how, names in (("higher", better), ("lower", worse)) if names]
    return f"{digest} has {' and '.join(parts)}" if parts else f"the labels show no difference of {digest}"
