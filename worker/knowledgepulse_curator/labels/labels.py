"""Labels: judgements whether traces are worth keeping, and the agreement of their sources."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.terminal.lines import located_lines

JUDGE_PREFIX = "judge:"
"""The prefix of the source of a model's labels."""


class Label(msgspec.Struct, frozen=True, omit_defaults=True):
    """A judgement on whether a trace is worth keeping, with either ``keep`` or ``reward``.

    Attributes:
        id: the trace's id, or that of its run in the system it comes from (`metadata.native_id`).
        source: the person or the tool that gave the label.
        group: shared by traces that are not independent, such as the trials of one task; found if None.
        sampling: how the trace was chosen: at random of all traces of its domain, at random of those that
            pass, or by a plan of `policy label --promise`; None if that is not known.
        skipped: whether the labeller could not tell. Such a label says `keep: false`, but only a promise
            reads it.
    """

    id: Annotated[str, Meta(min_length=1)]
    keep: bool | None = None
    reward: float | None = None
    source: str | None = None
    group: str | int | None = None
    sampling: Literal["random", "passing", "step"] | None = None
    skipped: bool = False

    @property
    def is_judges(self) -> bool:
        """Whether a model gave the label."""
        return (self.source or "").startswith(JUDGE_PREFIX)

    @property
    def share(self) -> float:
        """The reward, or 1 for a trace to keep and 0 for one to drop."""
        return self.reward if self.reward is not None else float(bool(self.keep))

    def is_kept(self, min_reward: float) -> bool:
        """Return ``keep``, or whether the reward is at least ``min_reward``."""
        return self.keep if self.keep is not None else (self.reward or 0) >= min_reward


OUTCOME = "outcome"
"""The source of labels that are the traces' own outcomes."""

MIN_SUPPORT = 10
"""A verdict needs this many traces of each kind and as many groups; a threshold, traces on each side."""

MIN_KEPT_REWARD = 0.5
"""The lowest reward of a trace worth keeping, by default."""

MAX_SOURCES = 50
"""Sources of labels whose agreement is computed."""

COPIED_AGREEMENT = 0.99
"""Two sources that agree on this share of their traces may not be independent."""

MIN_COPIED_TRACES = 30
"""With fewer traces in common, such an agreement says nothing."""

Labels = dict[str, Label]
"""Labels by the id that they give."""

_decode = msgspec.json.Decoder(Label).decode


def read_label(source: str, text: bytes) -> Label:
    """Parse a label from JSON.

    Raises:
        InputError: the JSON is invalid, or lacks ``id`` or exactly one of ``keep`` and ``reward``.
    """
    try:
        label = _decode(text)
    except DECODE_ERRORS as error:
        raise InputError(f"{source}: not a label: {error}") from None
    if (label.keep is None) == (label.reward is None):
        raise InputError(f"{source}: not a label: give either keep (true or false) or reward (a number)")
    return label


def labels_of_files(paths: Iterable[Path]) -> list[Label]:
    """Read labels, one JSON document per line, including labels that a later one replaces.

    Raises:
        InputError: a file is empty or a line is not a label.
    """
    return [read_label(source, line) for path in paths for source, line in located_lines(path)]


def labels_of_outcomes(records: Iterable[ScoredRecord], min_rewards: Mapping[str, float]) -> Iterator[Label]:
    """Yield the label of each trace whose run somebody judged, with the task as the group.

    ``min_rewards``: the rewards that judge in place of ``metadata.success``, by name, each with the least of
    a trace worth keeping. One that has several of them has to reach each.
    """
    for record in records:
        graded = record.graded
        reached = [
            graded.rewards[name] >= least for name, least in min_rewards.items() if name in graded.rewards
        ]
        keep = all(reached) if reached else graded.success
        if keep is not None:
            yield Label(record.id, keep=keep, source=OUTCOME, group=graded.task_id)


def label_of(record: ScoredRecord, labels: Labels) -> Label | None:
    """Return the label of a trace, by the trace's id or else by its run's native id."""
    return labels.get(record.id) or labels.get(record.native_id or "")


def drawn_place(trace_id: str, key: str = "") -> bytes:
    """Return a trace's place in random samples, which depends on its id alone, and on a key if there is one.

    Who knows the key can choose an id by its place; producers do not.
    """
    return blake2b(trace_id.encode("utf-8", "replace"), digest_size=8, key=key.encode()[:64]).digest()


@dataclass(frozen=True)
class Agreement:
    """The agreement of two sources of labels on the traces that both labelled.

    Attributes:
        agreed: number of traces with the same label.
        kappa: Cohen's kappa, the agreement beyond chance, at most 1; None if all their labels are equal.
    """

    sources: tuple[str, str]
    traces: int
    agreed: int
    kappa: float | None

    @property
    def is_suspicious(self) -> bool:
        """Whether the sources agree too well to be independent."""
        return self.traces >= MIN_COPIED_TRACES and self.agreed >= COPIED_AGREEMENT * self.traces

    def __str__(self) -> str:
        both = " and ".join(map(printable, self.sources))
        kappa = "no kappa, as all are equal" if self.kappa is None else f"Cohen's kappa {self.kappa:.2f}"
        of = f"{self.agreed:,} of {counted(self.traces, 'trace')}"
        return f"agreement: {both} give {of} the same label; {kappa}"


def agreement_lines(agreements: Iterable[Agreement]) -> Iterator[str]:
    """Yield a sentence for each agreement, with a warning if it is suspicious."""
    for agreement in agreements:
        yield str(agreement)
        if agreement.is_suspicious:
            yield "warning: they agree so well that one may be derived from the other, and confirms nothing"


def agreements(labels: Iterable[Label], min_reward: float) -> Iterator[Agreement]:
    """Yield the agreement of every two sources that labelled the same traces, most traces first.

    Of more than :data:`MAX_SOURCES` sources, only the sources with the most labels are compared, because the
    number of pairs grows with the square of the number of sources.

    ``labels``: the labels of all sources. The last label that a source gives to a trace counts. Labels
    without a source, and those of skipped traces, are left out.
    """
    by_trace: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for label in labels:
        if label.source and not label.skipped:
            by_trace[label.id][label.source] = label.is_kept(min_reward)
    given = Counter(source for kept in by_trace.values() for source in kept)
    compared = set(sorted(given, key=lambda source: (-given[source], source))[:MAX_SOURCES])
    pairs: defaultdict[tuple[str, str], Counter[tuple[bool, bool]]] = defaultdict(Counter)
    for kept in by_trace.values():
        for first, second in combinations(sorted(kept.keys() & compared), 2):
            pairs[first, second][kept[first], kept[second]] += 1
    for sources, both in sorted(pairs.items(), key=lambda item: (-item[1].total(), item[0])):
        yield Agreement(sources, both.total(), both[True, True] + both[False, False], _kappa(both))


def _kappa(both: Counter[tuple[bool, bool]]) -> float | None:
    """Return Cohen's kappa; None if all labels are equal."""
    if len({kept for pair, count in both.items() if count for kept in pair}) == 1:
        return None
    total = both.total()
    first = (both[True, True] + both[True, False]) / total
    second = (both[True, True] + both[False, True]) / total
    agreed = (both[True, True] + both[False, False]) / total
    by_chance = first * second + (1 - first) * (1 - second)
    return (agreed - by_chance) / (1 - by_chance)
