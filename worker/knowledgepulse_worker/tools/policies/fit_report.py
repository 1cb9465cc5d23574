"""The report of a fit."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from knowledgepulse_worker.tools.policies.estimates import CHANCE, signed, with_interval
from knowledgepulse_worker.tools.policies.fit import FEW_GROUPS, FOLDS, DomainFit, Fit
from knowledgepulse_worker.tools.policies.labelled_traces import LEAK_AGREEMENT
from knowledgepulse_worker.tools.policies.policy_output import DIMENSION_TITLES, new_table
from knowledgepulse_worker.tools.policies.tune import effect, policy_toml


def fit_tables(fit: Fit) -> Iterator[Table | str]:
    """Yield the report of a fit, with warnings and a sentence for each domain."""
    yield (
        f"policy {fit.policy.digest}; figures of {FOLDS} folds of whole groups, each by the weights of the "
        "others; 95 % intervals over groups"
    )
    if fit.unmatched:
        yield f"{fit.unmatched} labels match none of the traces"
    for one in fit.domains.values():
        yield ""
        yield from _domain(one, fit.target)


def fitted_toml(fit: Fit) -> str:
    """Return the proposed ``[policy]`` as TOML, with a comment on what each domain's labels say."""
    comments = []
    for name, one in fit.domains.items():
        comments.append(f"{name}: {_sentence(one)}")
        if name in fit.supported and name in fit.tuning.domains:
            comments.append(effect(fit.tuning.domains[name]))
    return policy_toml(fit.proposed, comments)


def _domain(one: DomainFit, target: float) -> Iterator[Table | str]:
    yield f"{one.domain}: {one.kept} of {one.traces} traces worth keeping, {one.groups} independent groups"
    if one.candidates:
        yield _candidates(one, target)
    yield from (f"warning: {one.domain}: {warning}" for warning in _warnings(one))
    yield f"fit: {one.domain}: {_sentence(one)}"


def _candidates(one: DomainFit, target: float) -> Table:
    table = new_table(
        "weights", *DIMENSION_TITLES, "AUC", f"best {target:.0%}", "worth keeping", "groups / at random"
    )
    for name, found in one.candidates.items():
        weights = (f"{weight:g}" for weight in found.weights.values())
        gain = found.point.coverage.gain if found.point.coverage else None
        figures = (with_interval(figure) for figure in (found.point.precision, gain))
        table.add_row(name, *weights, with_interval(found.auc), str(found.point.passing), *figures)
    return table


def _warnings(one: DomainFit) -> Iterator[str]:
    if not one.candidates:
        return
    if one.groups < FEW_GROUPS:
        yield f"{one.groups} groups are few: intervals over fewer than {FEW_GROUPS} are too narrow"
    if one.agreement >= LEAK_AGREEMENT and not one.held:
        yield (
            f"{one.agreement:.0%} of the labels equal metadata.success, from which outcome confidence is "
            "computed: its weight is fitted to the label itself"
        )
    for name, alone in one.leaks.items():
        told = f"{name.replace('_', ' ')} alone predicts the label (AUC {alone.value:.2f})"
        yield f"{told}: its weight is fitted to the label itself"


def _sentence(one: DomainFit) -> str:
    if one.difference is None:
        return one.too_few
    held = "; outcome confidence held constant" if one.held else ""
    change = f"AUC {signed(one.difference)} against the weights in force{held}"
    if one.outcome == "supported":
        return f"the labels support these weights: {change}"
    fitted = one.candidates["fitted"].auc
    still = f"; even the fitted weights' AUC is {with_interval(fitted)}" if fitted.low <= CHANCE else ""
    return f"the labels do not support a change: {change}{still}"
