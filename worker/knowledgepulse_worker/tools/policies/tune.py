"""Tune thresholds: the score distribution, the threshold for a target share, and the policy to review."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import numpy as np
import tomli_w

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.policy import DomainPolicy, Policy, places
from knowledgepulse_worker.scoring import Score, ScoredRecord, scores_under
from knowledgepulse_worker.settings import EmbeddingSettings
from knowledgepulse_worker.terminal.printable import printable_line
from knowledgepulse_worker.tools.policies.estimates import Array, Estimate, kth_largest, share
from knowledgepulse_worker.tools.policies.share_effects import Repeats, SharePassing, repeats, share_passing
from knowledgepulse_worker.tools.score.offline import embedder_name

QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
THRESHOLD_GRID = tuple(round(number * 0.05, 2) for number in range(21))

Changes = Mapping[str, Mapping[str, Any]]
"""By domain, its new ``threshold`` or ``share``, ``weights`` or ``learned`` value."""

MIN_PASSING = 10
"""The fewest passing traces from which a threshold is proposed; of fewer, a share is."""

_DECIMALS = range(4, 20)
_UNRECORDED_EMBEDDER = "not recorded"
"""The embedder of a record of a topic: its ``kp-score`` header does not say."""


@dataclass(frozen=True)
class Passing:
    """A threshold and the share of the traces that pass it."""

    threshold: float
    share: Estimate


@dataclass(frozen=True)
class Proposal:
    """The threshold that lets at most the target share pass.

    Attributes:
        needed: the lowest score that passes, with its bootstrap interval.
        passing: this score as a rounded threshold, and the share that passes it.
    """

    needed: Estimate
    passing: Passing


@dataclass(frozen=True)
class DomainTuning:
    """The tuning of one domain.

    Attributes:
        quantiles: quantiles of the score, by QUANTILES.
        share: the policy's share; None if its threshold decides.
        current: the policy's threshold, and the share that passes by it or by the policy's share.
        shares: what shares would have let pass of the stream in its order.
        repeats: what lowest novelties would withhold, of all traces of the domain.
        grid: thresholds from 0 to 1.
        proposal: the proposed threshold; None if more traces than the target share have the highest score.
        best: number of traces with the highest score.
    """

    domain: str
    traces: int
    quantiles: dict[float, float]
    share: float | None
    current: Passing
    shares: list[SharePassing]
    repeats: list[Repeats]
    grid: list[Passing]
    proposal: Proposal | None
    best: int

    @property
    def has_few(self) -> bool:
        """Whether too few traces pass by the proposed threshold, or none is proposed."""
        return self.proposal is None or round(self.proposal.passing.share.value * self.traces) < MIN_PASSING


@dataclass(frozen=True)
class Tuning:
    """The tuning of all domains that have traces.

    Attributes:
        policy: the digest of the policy that all traces are scored under.
        embedders: number of traces by the embedder that computed their novelty.
        withheld: number of traces that are left out because the policy withholds them.
        proposed: the policy with the proposed thresholds; domains without a proposal keep theirs.
    """

    policy: str
    target: float
    domains: dict[str, DomainTuning]
    embedders: dict[str, int]
    withheld: int
    proposed: Policy


def tune(
    records: Iterable[ScoredRecord], policy: Policy, target: float, *, by_threshold: bool = False
) -> Tuning:
    """Score records under a policy and propose shares, which hold as the scores change, or thresholds.

    Args:
        records: the scored traces.
        policy: the policy.
        target: the share of each domain that should pass, more than 0 and up to 1.
        by_threshold: whether thresholds are proposed.

    Raises:
        InputError: there are no records, or the policy withholds them all.
    """
    records = list(records)
    scores = scores_under(records, policy)
    by_domain: defaultdict[str, list[tuple[ScoredRecord, Score]]] = defaultdict(list)
    novelties: defaultdict[str, list[float]] = defaultdict(list)
    for record, score in zip(records, scores, strict=True):
        novelties[score.domain].append(score.novelty)
        if score.withheld is None:
            by_domain[score.domain].append((record, score))
    withheld = sum(score.withheld is not None for score in scores)
    if not by_domain:
        because = f": the policy withholds all {withheld}" if withheld else ""
        raise InputError(f"no scored traces to tune with{because}")
    domains = {
        name: _tune_domain(by_domain[name], novelties[name], policy, target) for name in sorted(by_domain)
    }
    changes = proposed_changes(domains, target, policy.share_window, by_threshold=by_threshold)
    proposed = with_changes(policy, changes)
    return Tuning(policy.digest, target, domains, embedders_of(records), withheld, proposed)


def proposed_changes(
    domains: Mapping[str, DomainTuning], target: float, window: int, *, by_threshold: bool
) -> Changes:
    """Return the target as the share of each domain, or the proposed thresholds.

    A domain gets a share all the same if it has one, or if too few traces tell a threshold, and a threshold
    if the window, in which a share is counted, is too small for one of its places.
    """
    changes: dict[str, dict[str, float]] = {}
    for name, domain in domains.items():
        wanted = domain.has_few or not by_threshold
        if domain.share is not None or (wanted and math.ceil(1 / target) <= window):
            changes[name] = {"share": target}
        elif domain.proposal is not None:
            changes[name] = {"threshold": domain.proposal.passing.threshold}
    return changes


def proposed_toml(tuning: Tuning) -> str:
    """Return the proposed ``[policy]`` as TOML, with a comment on its effect on each domain."""
    effects = (_proposed_effect(domain, tuning) for domain in tuning.domains.values())
    comments = [f"embedder: {described(tuning.embedders)}", *effects]
    return policy_toml(tuning.proposed, comments)


def _proposed_effect(domain: DomainTuning, tuning: Tuning) -> str:
    proposed = tuning.proposed.profile(domain.domain).share
    if domain.share is not None or domain.has_few or proposed is None or domain.proposal is None:
        return effect(domain)
    return (
        f"{domain.domain}: of {counted(domain.traces, 'trace')}, share {proposed:g} passes the best "
        f"{places(proposed, domain.traces):,}, here from {domain.proposal.passing.threshold}"
    )


def effect(domain: DomainTuning) -> str:
    """Return a sentence on the share of a domain's traces that the proposed threshold lets pass.

    For a domain with a share, it is on the share that passes by it.
    """
    if domain.share is not None:
        passing = (
            f"{domain.current.share.value:.1%} pass in this order by the policy's share {domain.share:g}"
        )
        return f"{domain.domain}: of {counted(domain.traces, 'trace')}, {passing}"
    if domain.proposal is None:
        highest = domain.quantiles[1]
        of = f"the best {domain.best:,} of {counted(domain.traces, 'trace')}, {highest!r},"
        return f"{domain.domain}: no threshold, as {of} are too many"
    if domain.has_few:
        few = counted(domain.traces, "trace")
        return f"{domain.domain}: {few} tell no threshold; a share passes the best, whatever their scores"
    share = domain.proposal.passing.share
    reached = (
        f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%}) reach {domain.proposal.passing.threshold}"
    )
    return f"{domain.domain}: of {counted(domain.traces, 'trace')}, {reached}"


def _tune_domain(
    traces: Sequence[tuple[ScoredRecord, Score]], novelties: Sequence[float], policy: Policy, target: float
) -> DomainTuning:
    records, scores = [record for record, _ in traces], [score for _, score in traces]
    profile = policy.profile(scores[0].domain)
    passing = share(sum(score.passes for score in scores), len(scores))
    values = np.array([score.quality_score for score in scores])
    best = lowest_within(values, target)
    return DomainTuning(
        domain=profile.domain,
        traces=len(values),
        quantiles={q: float(np.quantile(values, q)) for q in QUANTILES},
        share=profile.share,
        current=Passing(profile.threshold, passing),
        shares=share_passing(records, scores, policy),
        repeats=repeats(novelties),
        grid=[_passing(values, threshold) for threshold in THRESHOLD_GRID],
        proposal=best
        and Proposal(kth_largest(values, best[1]), _passing(values, rounded_threshold(values, best[0]))),
        best=int((values == values.max()).sum()),
    )


def _passing(values: Array, threshold: float) -> Passing:
    return Passing(threshold, share(int((values >= threshold).sum()), len(values)))


def rounded_threshold(scores: Array, lowest: float) -> float:
    """Return a threshold that exactly the scores of at least ``lowest``, one of the scores, reach.

    The threshold is rounded down to four decimals, or to more decimals where four would reach the next lower
    score.
    """
    below = float(scores[scores < lowest].max(initial=-math.inf))
    exact = Decimal(repr(float(lowest)))
    rounded = (float(exact.quantize(Decimal(1).scaleb(-decimals), ROUND_FLOOR)) for decimals in _DECIMALS)
    return next((threshold for threshold in rounded if threshold > below), lowest)


def lowest_within(scores: Array, target: float) -> tuple[float, int] | None:
    """Return the lowest score among the best traces, at most a target share of all, and their number.

    Traces with equal scores pass or fail together. Return None if the traces with the highest score already
    exceed the target, which is more than 0 and up to 1.
    """
    values, numbers = np.unique(-scores, return_counts=True)
    passing = numbers.cumsum()
    # 0.07 * 100 is 7.000000000000001, and 0.29 * 100 is 28.999999999999996.
    last = int(np.searchsorted(passing, round(target * len(scores), 9), side="right")) - 1
    return None if last < 0 else (float(-values[last]), int(passing[last]))


def with_changes(policy: Policy, changes: Changes) -> Policy:
    """Return a policy that differs for some domains and is unchanged for all others.

    A domain inherits from ``default`` the values that it omits. If ``default`` changes, such a domain gets
    the former values as its own.
    """
    changed = _with(policy, changes)
    kept: dict[str, dict[str, Any]] = {}
    for name, profile in policy.profiles.items():
        now, own = changed.profile(name), changes.get(name, {})
        fields: dict[str, Any] = {}
        if not {"threshold", "share"} & own.keys() and now.rule != profile.rule:
            fields |= profile.rule
        if "weights" not in own and now.weights != profile.weights:
            fields["weights"] = profile.weights
        if fields:
            kept[name] = fields
    return _with(changed, kept)


def policy_toml(policy: Policy, comments: Iterable[str]) -> str:
    """Return a ``[policy]`` as TOML below comments."""
    lines = "".join(f"# {line}\n" for line in comments)
    return lines + tomli_w.dumps({"policy": policy.model_dump(mode="json", exclude_none=True)})


def _with(policy: Policy, changes: Changes) -> Policy:
    domains = dict(policy.domains)
    for name, fields in changes.items():
        rules = {"threshold", "share"}
        former = dict.fromkeys(rules) if rules & fields.keys() else {}
        domains[name] = domains.get(name, DomainPolicy()).model_copy(update={**former, **fields})
    return Policy(**policy.model_dump(exclude={"domains"}), domains=domains)


def embedders_of(records: Iterable[ScoredRecord]) -> dict[str, int]:
    """Return the numbers of traces by embedder, the most frequent first."""
    return dict(Counter(record.embedder or _UNRECORDED_EMBEDDER for record in records).most_common())


def described(embedders: Mapping[str, int]) -> str:
    """Return the embedders and their numbers of traces in words; text from files is escaped and cut."""
    texts = (f"{name} ({counted(count, 'trace')})" for name, count in embedders.items())
    return printable_line("; ".join(texts))


def embedder_warning(records: Iterable[ScoredRecord], settings: EmbeddingSettings) -> str | None:
    """Return a warning if the traces' novelty is not of one embedder, or not of the configured one."""
    embedders, configured = embedders_of(records), embedder_name(settings)
    if len(embedders) > 1:
        return f"these scores come from several embedders and cannot be compared: {described(embedders)}"
    (name,) = embedders
    if name in (configured, _UNRECORDED_EMBEDDER):
        return None
    return (
        f"these scores were computed with {printable_line(name)}, but the settings' embedder is "
        f"{configured}, which gives other scores"
    )
