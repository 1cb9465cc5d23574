"""The report of a fit: the verdict of each domain first, then figures, weights and warnings."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from knowledgepulse_curator.fitting.fit import (
    TELLTALE_AUC,
    DomainFit,
    Fit,
)
from knowledgepulse_curator.fitting.labelled_traces import LEAK_AGREEMENT
from knowledgepulse_curator.fitting.length import LENGTH_FACTS
from knowledgepulse_curator.fitting.logistic import FOLDS
from knowledgepulse_curator.fitting.permutations import level
from knowledgepulse_curator.fitting.word_fit import WordFit
from knowledgepulse_curator.labels.labels import MIN_SUPPORT
from knowledgepulse_curator.promises.promise_report import promise_lines, sentence
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.policy import LearnedValue
from knowledgepulse_worker.tools.policies.estimates import CHANCE_AUC, in_pairs, signed, with_interval
from knowledgepulse_worker.tools.policies.policy_output import learned_table, words_table
from knowledgepulse_worker.tools.policies.tune import policy_toml
from knowledgepulse_worker.tools.terminal.reports import new_table


def fit_tables(fit: Fit) -> Iterator[Table | str]:
    """Yield the report of a fit: for each domain a verdict, figures, weights and warnings."""
    for name, domain in fit.domains.items():
        yield f"fit: {name}: {_sentence(domain)}"
        yield f"fit: {name}: {_plainly(domain)}"
    yield from promise_lines(fit.promises.values())
    yield ""
    yield (
        f"policy {fit.policy}; figures of traces that were not fitted to, in {FOLDS} folds of whole "
        "groups; 95% intervals over groups"
    )
    if fit.unmatched:
        yield f"labels that match no trace: {fit.unmatched:,}"
    for domain in fit.domains.values():
        yield from _domain(domain, fit.target)


def fitted_toml(fit: Fit) -> str:
    """Return the proposed ``[policy]`` as TOML, with a comment on what each domain's labels say."""
    comments = []
    for name, domain in fit.domains.items():
        comments.append(f"{name}: {_sentence(domain)}")
        if domain.effect:
            comments.append(domain.effect)
        if name in fit.promises:
            comments.append(f"{name}: {sentence(fit.promises[name])}")
    return policy_toml(fit.proposed, comments)


def _domain(domain: DomainFit, target: float) -> Iterator[Table | str]:
    yield ""
    yield (
        f"{domain.domain}: {domain.kept:,} of {domain.traces:,} traces worth keeping "
        f"({domain.kept / domain.traces:.0%}), {domain.groups:,} independent groups "
        f"(traces by how their group was found: {domain.how_grouped})"
    )
    yield from _labels(domain)
    if domain.learned is None:
        return
    table = new_table("score", "AUC", "within a group", f"kept of the best {target:.0%}")
    for name, appraisal in domain.appraisals.items():
        if name == "in force" and domain.since is not None:
            name = f"in force, on {counted(domain.since, 'label')} since its fit"  # noqa: PLW2901
        figures = (appraisal.auc, appraisal.within, appraisal.best)
        table.add_row(name, *(with_interval(figure) for figure in figures))
    yield table
    if domain.surprise is not None:
        yield (
            f"{100 * domain.surprise:.4g}% of the labels that groups exchanged at random have a lower AUC; "
            f"{100 * level(domain.grouped):.4g}% are asked for"
        )
    if domain.new_agents is not None:
        yield f"on agents that were not fitted to, within each: AUC {with_interval(domain.new_agents)}"
    else:
        yield "on agents that were not fitted to: unknown, as the labels are of one agent"
    yield ""
    yield learned_table(domain.learned)
    if domain.words is not None:
        yield from _words(domain.words)
    if domain.learned.words is not None:
        yield from words_table(domain.learned.words)
    yield from (f"warning: {domain.domain}: {warning}" for warning in _warnings(domain, domain.learned))


def _words(words: WordFit) -> Iterator[str]:
    yield ""
    if words.left_out:
        yield f"words are left out: {words.left_out}"
    for word, alone in words.leaks.items():
        yield f"the word {printable(word)} alone predicts the label (AUC {with_interval(alone)})"
    if words.gain is not None:
        yield (
            f"words on tasks not seen, in folds of whole groups: AUC {signed(words.gain)} beside the facts; "
            f"{with_interval(words.alone)} alone"
        )
    if words.seen:
        told = ", ".join(f"{name} {with_interval(estimate)}" for name, estimate in words.seen.items())
        yield f"words on tasks seen, in folds of traces: AUC of {told}"


def _labels(domain: DomainFit) -> Iterator[str]:
    if domain.judges:
        judged = counted(domain.judges, "label")
        yield f"also fitted to {judged} of judges; all figures are of people's labels"
    if domain.rest:
        yield (
            f"no label says drop, so traces worth keeping are told from {counted(domain.rest, 'trace')} "
            "without a label, some of which are worth keeping, too: an AUC is too low rather than too high, "
            "and the learned value orders traces, but is no probability that one is worth keeping"
        )


def _warnings(domain: DomainFit, learned: LearnedValue) -> Iterator[str]:
    if domain.agreement >= LEAK_AGREEMENT and not domain.held:
        yield (
            f"{domain.agreement:.0%} of the labels equal metadata.success, from which outcome confidence is "
            "computed: the value is fitted to the label itself"
        )
    for name, alone in domain.leaks.items():
        told = f"{name.replace('_', ' ')} alone predicts the label (AUC {alone.value:.2f})"
        yield f"{told}: the value is fitted to the label itself"
    for name, traces in domain.stated.items():
        told = f"the texts of {counted(traces, 'trace')} state '{name}', which predicts the label"
        yield f"{told}: remove it first"
    for name, cause in (
        ("length alone", "the environment may end a run as soon as it succeeds"),
        ("agent alone", "the value may only recognise the agent; fit again when the agents change"),
    ):
        appraisal = domain.appraisals.get(name)
        if appraisal is not None and appraisal.auc.value >= TELLTALE_AUC:
            yield f"{name} nearly is the label (AUC {appraisal.auc.value:.2f}): {cause}"
    if domain.new_agents is not None and domain.new_agents.low <= CHANCE_AUC:
        worse = "is worse than" if domain.new_agents.high < CHANCE_AUC else "may be no better than"
        yield f"on other agents, it {worse} chance: fit again when the agents change"
    within = domain.appraisals["fitted"].within
    if within is None or within.low <= CHANCE_AUC:
        yield "it is not shown to tell good from bad runs of the same task; it may only recognise easy tasks"
    if not {*LENGTH_FACTS} & {*learned.terms}:
        yield "all traces have the same length"


def _sentence(domain: DomainFit) -> str:
    if domain.outcome == "too few labels":
        return f"no proposal: {domain.too_few(MIN_SUPPORT, MIN_SUPPORT)}"
    fitted = domain.appraisals["fitted"]
    force = domain.appraisals.get("in force")
    best = f"{with_interval(force.best if force else None)} → {with_interval(fitted.best)}"
    figures = (
        f"AUC {with_interval(fitted.auc)}{' against traces without a label' if domain.rest else ''}, "
        f"{signed(domain.difference)} against the policy in force"
        f"{' (outcome confidence held constant)' if domain.held else ''}"
        f"{f', {domain.length}' if domain.length else ''}; kept of the best: {best}, "
        f"of all {domain.kept / domain.traces:.2f}"
    )
    if domain.missing:
        return f"no proposal, for want of {' and '.join(domain.missing)}: {figures}"
    only = (
        ""
        if domain.length is None or domain.length.is_beaten
        else f", but not over {domain.length.preference}"
    )
    return f"the labels support the learned value{only}: {figures}"


def _plainly(domain: DomainFit) -> str:
    """Return the verdict for who does not know an AUC."""
    if domain.outcome == "too few labels":
        return "in plain words: label more traces (`kp-worker policy label`) before anything can be said"
    what = in_pairs("the learned value", domain.appraisals["fitted"].auc)
    if domain.unnamed:
        return f"{what}. It would be proposed if the labels named the tasks of their traces (`group`)"
    if domain.missing:
        return f"{what}. That is not enough to change the policy"
    return f"{what}. It is proposed"
