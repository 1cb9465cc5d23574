"""What shares would have let pass of a stream in its order, and what a lowest novelty would drop."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from msgspec.structs import replace
from rich.table import Table

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import RecentScores, Score, ScoredRecord
from knowledgepulse_worker.tools.terminal.reports import new_table

TABLED_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)
TABLED_NOVELTIES = (0.01, 0.02, 0.05, 0.1, 0.2)

HOUR_MS = 3_600_000
LINES_OF_AN_HOUR = 100
"""Number of lines of a file that are taken for an hour, since lines have no time."""

MIN_TRACES_OF_AN_HOUR = 20
"""Least number of traces of an hour that counts."""


@dataclass(frozen=True)
class SharePassing:
    """What a share would have let pass.

    Attributes:
        share: the share.
        traces: number of traces that it would have decided on; before, there are too few scores.
        passing: number of these that would have passed.
        lowest, highest: the lowest and the highest share that would have passed of an hour; None without an
            hour of enough traces.
    """

    share: float
    traces: int
    passing: int
    lowest: float | None
    highest: float | None


@dataclass(frozen=True)
class Repeats:
    """The traces that a lowest novelty would withhold.

    Attributes:
        min_novelty: the lowest novelty.
        traces: number of traces below it.
        kept: number of these that are labelled as worth keeping; None without labels.
    """

    min_novelty: float
    traces: int
    kept: int | None = None

    def __str__(self) -> str:
        return f"{self.traces:,}" if self.kept is None else f"{self.traces:,}, {self.kept:,}"


def repeats_table(by_domain: Mapping[str, Sequence[Repeats]]) -> Table:
    """Return what each lowest novelty would withhold, a row for each domain."""
    table = new_table("domain", *(f"below {novelty:g}" for novelty in TABLED_NOVELTIES))
    for domain, effects in by_domain.items():
        table.add_row(domain, *map(str, effects))
    return table


def share_passing(
    records: Sequence[ScoredRecord], scores: Sequence[Score], policy: Policy
) -> list[SharePassing]:
    """Return what each of some shares would have let pass of one domain's traces.

    The traces are ranked among the last ones of their partition, in the order of their offsets.

    Args:
        records: the traces of a domain, none of which is withheld.
        scores: their scores.
        policy: gives the number of last scores.
    """
    ordered = sorted(zip(records, scores, strict=True), key=lambda item: item[0].offset)
    profile = policy.profile(scores[0].domain)
    effects = []
    for share in TABLED_SHARES:
        shared = dataclasses.replace(profile, share=share)
        recent: dict[tuple[str, int], RecentScores] = {}
        passes: list[tuple[int, bool]] = []
        for number, (record, score) in enumerate(ordered):
            plain = replace(score, share=None, rank=None, of=None)
            decided = recent.setdefault(record.log, RecentScores()).decide(plain, shared, record.agent_id)
            if decided.rank is not None:
                time_ms = record.timestamp_ms
                hour = number // LINES_OF_AN_HOUR if time_ms is None else time_ms // HOUR_MS
                passes.append((hour, decided.passes))
        hours = [
            [passed for _, passed in of_hour]
            for _, of_hour in groupby(sorted(passes), key=lambda item: item[0])
        ]
        shares = [sum(hour) / len(hour) for hour in hours if len(hour) >= MIN_TRACES_OF_AN_HOUR]
        passing, lowest, highest = sum(map(sum, hours)), min(shares, default=None), max(shares, default=None)
        effects.append(SharePassing(share, len(passes), passing, lowest, highest))
    return effects


def repeats(novelties: Iterable[float], kept: Iterable[bool] | None = None) -> list[Repeats]:
    """Return what each of some lowest novelties would withhold.

    Args:
        novelties: the novelties of traces.
        kept: whether each is labelled as worth keeping; None without labels.
    """
    values, labels = list(novelties), None if kept is None else list(kept)
    effects = []
    for lowest in TABLED_NOVELTIES:
        below = [at for at, value in enumerate(values) if value < lowest]
        effects.append(
            Repeats(lowest, len(below), None if labels is None else sum(labels[at] for at in below))
        )
    return effects
