"""A prior: weights of facts that were fitted to public runs, for a domain without labels.

What a fact means differs between streams: 40 steps are many for one agent and few for another. Therefore the
weights apply to facts in deviations from the mean of the stream's own traces, which need no labels. Both are
computed once, from the traces at hand, and written into the policy: a score does not depend on traces that
come later.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec

from knowledgepulse_curator.fitting import logistic
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.policy import LearnedValue, Policy, Term
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.tune import effect, policy_toml, tune, with_changes

MIN_TRACES = 50
"""Means and deviations of fewer traces would depend on chance; see ``docs/curators/evidence.md``."""


class Prior(msgspec.Struct, frozen=True):
    """A prior that ships with the worker; ``tests/policies/prior.py`` makes it.

    Attributes:
        name: the name, which ends with a version: a prior never changes.
        domain: the domain whose traces it was fitted to.
        facts_version: the version of the facts.
        clip: see :class:`Term`.
        weights: the weight of each fact.
        corpora: the names of the corpora that it was fitted to.
    """

    name: str
    domain: str
    facts_version: int
    clip: float
    weights: dict[str, float]
    corpora: list[str]


@cache
def priors() -> dict[str, Prior]:
    """Return the priors by name."""
    files = resources.files("knowledgepulse_curator.fitting").joinpath("priors").iterdir()
    read = [msgspec.json.decode(file.read_bytes(), type=Prior) for file in files]
    return {prior.name: prior for prior in sorted(read, key=lambda prior: prior.name)}


def prior_toml(
    prior: Prior, records: Sequence[ScoredRecord], policy: Policy, *, target: float, share: float
) -> str:
    """Return a ``[policy]`` in which a prior is the learned value of its domain, with comments.

    Args:
        prior: the prior.
        records: the scored traces, of which those of the prior's domain give the means and deviations.
        policy: the policy to change.
        target: the share of the domain's traces that should pass.
        share: the share of the learned value in the score.

    Raises:
        InputError: there are fewer than :data:`MIN_TRACES` traces of the domain.
        NoFactsError: the counts of a trace are unknown.
    """
    name = prior.domain
    own = [record for record in records if policy.profile(record.task_domain).domain == name]
    if len(own) < MIN_TRACES:
        raise InputError(
            f"{prior.name} needs {MIN_TRACES} traces of the domain {name}, and there are {len(own)}"
        )
    learned = standardised(prior, own, share)
    proposed = with_changes(policy, {name: {"learned": learned, "share": target}})
    comment = (
        f"{name}: the weights of {prior.name}, which were fitted to public runs; means and deviations of "
        f"{counted(len(own), 'trace')}; no label of yours confirms it"
    )
    return policy_toml(proposed, [comment, effect(tune(own, proposed, target).domains[name])])


def standardised(prior: Prior, records: Sequence[ScoredRecord], share: float) -> LearnedValue:
    """Return a prior as a learned value, with the means and deviations of traces.

    A fact that does not vary has no term. An average trace has even odds, since without labels it is not
    known how many are worth keeping: the value only orders traces.
    """
    values, terms = logistic.values_of(records), dict[str, Term]()
    for name, weight in prior.weights.items():
        column = values[name]
        if logistic.varies(column):
            mean, deviation = logistic.rounded(column.mean()), logistic.rounded(column.std())
            terms[name] = Term(mean=mean, deviation=deviation, weight=weight, clip=prior.clip)
    return LearnedValue(
        share=share, facts_version=prior.facts_version, intercept=0.0, terms=terms, prior=prior.name
    )
