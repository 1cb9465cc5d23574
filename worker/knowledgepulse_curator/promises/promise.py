"""A promise on a domain: what is certified by which labels, of whom it speaks, and what it does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np
from msgspec.structs import replace

from knowledgepulse_curator.labels.fitted_traces import fitted_to, recorded
from knowledgepulse_curator.labels.labels import MIN_KEPT_REWARD, Label, label_of
from knowledgepulse_curator.promises.certificate import (
    CONFIDENCE,
    SHARES,
    Evidence,
    asked_of_feedback,
    evidence,
    fewest,
    floor,
    labels_needed,
    widest,
)
from knowledgepulse_curator.promises.ranks import NEVER
from knowledgepulse_curator.promises.sample import Sample, Sampling, Stream, of_one_kind, sample_of
from knowledgepulse_worker import __version__
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import ScoredRecord

MAX_UNKNOWN = 0.1
"""The greatest part of what passes that may be by agents of which no label speaks."""

BEST_TENTH = SHARES.index(0.1)


Outcome = Literal["promised", "none", "not known", "withdrawn"]


@dataclass(frozen=True)
class Asked:
    """What is asked of a promise.

    Attributes:
        least: the least part of what passes that is to be worth keeping.
        odds: how much more often runs worth keeping get feedback than others; None to leave feedback out.
        embedder: that of the settings.
        min_reward: the lowest reward of a trace worth keeping.
        whole: whether the traces are all of a stream, and not a selection of it.
        key: by which the traces to label are chosen while there is a promise; empty to watch none.
    """

    least: float
    odds: float | None = None
    embedder: str | None = None
    min_reward: float = MIN_KEPT_REWARD
    whole: bool = True
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What labels promise of a domain.

    Attributes:
        outcome: whether a share is promised.
        share: the widest promised share; None without one, and if what passes now is promised, whatever the
            share.
        floors: of the best tenth, of all or of what passes now, the least part that is worth keeping;
            they hold together.
        unknown: why nothing is known.
        labels, kept, tasks: the numbers of labels, of those worth keeping, and of their tasks.
        of_task: the most labels of one task.
        by: the numbers of labels by who gave them.
        agents: the parts of the labels by agent.
        without_label: the parts of what would pass by agents of which there is no label.
        since, until: the times of the first and the last labelled raw record; None if they have none.
        withheld: the number of traces that guards withhold, of which nothing is said.
        needed: how many labels of passing traces would settle it at the rate that was measured, or confirm
            it, if traces are ranked out of fold; None if none would.
        skipped: the number of labels that were skipped, and count as not worth keeping.
        partitions: the highest number of a partition that was seen, plus 1.
        every: whether each trace has a label, so that nobody chose.
        out_of_fold: whether traces are ranked by values that were fitted to the labels of others. No theorem
            stands behind such a promise.
        key: by which the traces to label are chosen while the promise is watched; empty if it is not.
        ids: the labelled traces, as :func:`~knowledgepulse_curator.labels.fitted_traces.recorded` has them.
        last_ms: the time of the last raw record of the domain; None if they have none.
    """

    domain: str
    least: float
    confidence: float
    outcome: Outcome
    share: float | None
    floors: dict[str, float]
    unknown: list[str]
    sampling: Sampling | None
    odds: float | None
    labels: int
    kept: int
    tasks: int
    of_task: int
    skipped: int
    by: dict[str, int]
    agents: dict[str, float]
    without_label: dict[str, float]
    since: str | None
    until: str | None
    withheld: int
    needed: int | None
    policy: str
    embedder: str | None
    partitions: int
    release: str
    every: bool = False
    out_of_fold: bool = False
    key: str = ""
    ids: str | None = None
    last_ms: int | None = None


def promises(
    records: Sequence[ScoredRecord], labels: Sequence[Label], policy: Policy, asked: Asked
) -> dict[str, Promise]:
    """Return what labels since the fit promise of each domain that has any.

    ``labels``: all labels, of which the last of each trace counts.
    """
    named = {label.id: label for label in of_one_kind(labels)}
    given = [label_of(record, named) for record in records]
    stream = Stream(records, policy)
    usable = ~fitted_to(policy, records) & np.array([label is not None for label in given], bool)
    found = {}
    for name, at in stream.domains.items():
        if usable[at].any():
            own = at[usable[at]]
            pairs = [(records[place], label) for place in own if (label := given[place]) is not None]
            every = asked.whole and len(own) == len(at)
            if every:  # nobody chose
                pairs = [(record, replace(label, sampling="random")) for record, label in pairs]
            sample = sample_of(pairs, stream.width[own], stream.now[own], policy, asked.odds)
            found[name] = promise(name, sample, stream, asked, every=every)
    return found


def promise(
    name: str, sample: Sample, stream: Stream, asked: Asked, *, every: bool = False, out_of_fold: bool = False
) -> Promise:
    """Return what a sample of a domain's labelled traces promises."""
    heard, labels = [record for record, _ in sample.pairs], [label for _, label in sample.pairs]
    kept = np.array([label.is_kept(asked.min_reward) and not label.skipped for label in labels], bool)
    least = asked.least if asked.odds is None else asked_of_feedback(asked.least, asked.odds)
    at, error = widest(kept, sample.tasks, sample.passes, least)
    told = [evidence(kept[passes], sample.tasks[passes]) for passes in sample.passes]
    share = None if at is None else sample.shares[at]
    passing = stream.passing(name, sample.shares[-1] if at is None else share)
    without = parts_without_label(sample.agents, passing)
    embedders = sorted({record.embedder or asked.embedder or "" for record in heard})
    unknown = [*_unknown(labels, embedders, without, asked)]
    settling = [at] if at is not None else [n for n, one in enumerate(told) if one.labels >= fewest(least)]
    rates = [told[n].kept / told[n].labels for n in settling or [-1] if told[n].labels]
    times = sorted(record.timestamp_ms for record in heard if record.timestamp_ms is not None)
    own = [stream.records[place] for place in stream.domains[name].tolist()]
    outcome: Outcome = "not known" if unknown else "none" if at is None else "promised"
    return Promise(
        domain=name,
        least=asked.least,
        confidence=CONFIDENCE,
        outcome=outcome,
        share=share,
        floors=_floors(told, sample.shares, asked, error),
        unknown=unknown,
        sampling=sample.sampling if labels else None,
        odds=asked.odds,
        labels=len(labels),
        kept=int(kept.sum()),
        tasks=len(np.unique(sample.tasks)),
        of_task=int(np.bincount(sample.tasks).max()) if labels else 0,
        skipped=sum(label.skipped for label in labels),
        by=dict(Counter(label.source or "no source" for label in labels).most_common()),
        agents={agent: count / len(heard) for agent, count in sample.agents.most_common()},
        without_label=without,
        since=_day(times[0]) if times else None,
        until=_day(times[-1]) if times else None,
        withheld=int((stream.width[stream.domains[name]] == NEVER).sum()),
        needed=labels_needed(max(rates, default=0.0), least, error),
        policy=stream.policy.digest,
        embedder=embedders[0] if len(embedders) == 1 else None,
        partitions=1 + max(record.log[1] for record in own),
        release=__version__,
        every=every,
        out_of_fold=out_of_fold,
        key=asked.key if outcome == "promised" else "",
        ids=recorded(heard),
        last_ms=max((time for record in own if (time := record.timestamp_ms) is not None), default=None),
    )


def parts_without_label(known: Collection[str], passing: Sequence[ScoredRecord]) -> dict[str, float]:
    """Return the parts of what passes by agents of which there is no label, the largest first."""
    agents = Counter(record.agent_id or "" for record in passing)
    return {agent: count / len(passing) for agent, count in agents.most_common() if agent not in known}


def _floors(
    told: Sequence[Evidence], shares: Sequence[float | None], asked: Asked, error: float
) -> dict[str, float]:
    """Return the least parts worth keeping, which hold together: each has the error of one order."""
    if asked.odds is not None:  # the rate of feedback is not that of what passes
        return {}
    named = {"the best tenth": BEST_TENTH, "all": -1} if len(shares) > 1 else {"what passes now": -1}
    return {name: floor(told[at], error) for name, at in named.items() if told[at].labels}


def _unknown(
    labels: Sequence[Label], embedders: Sequence[str], without: dict[str, float], asked: Asked
) -> Iterator[str]:
    if not labels:
        yield (
            "no label says that its trace was chosen at random (`sampling`), as those of `policy label` do, "
            f"and not all traces have one; at least {fewest(asked.least)} labels of passing traces are needed"
            if asked.odds is None
            else "there is no label without `sampling` of a trace that passes"
        )
    if len(embedders) > 1 or (asked.embedder and embedders != [asked.embedder] and labels):
        named = " and ".join(map(printable, embedders))
        yield f"the labelled traces were scored with {named}, and the settings have {asked.embedder}"
    if labels:
        yield from strangers(without)


def strangers(without: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence if too much passes by agents of which there is no label."""
    if (part := sum(without.values())) > MAX_UNKNOWN:
        named = ", ".join(printable(agent) or "an agent without a name" for agent in [*without][:3])
        yield f"{part:.0%} of what would pass is by agents that no label knows: {named}"


def _day(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()
