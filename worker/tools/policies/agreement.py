"""Agreement of those who labelled the same traces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.policies.labels import Label


@dataclass(frozen=True)
class Agreement:
    """How far two sources of labels agree."""

    sources: tuple[str, str]  # the two, in alphabetical order
    traces: int  # number of traces that both labelled
    agreed: int  # number of these with the same label
    # Cohen's kappa, the agreement beyond chance, at most 1; None if all their labels are equal
    kappa: float | None

    def __str__(self) -> str:
        both = " and ".join(map(printable, self.sources))
        kappa = "no kappa, as all are equal" if self.kappa is None else f"Cohen's kappa {self.kappa:.2f}"
        return f"agreement: {both} give {self.agreed} of {self.traces} traces the same label; {kappa}"


def agreements(labels: Iterable[Label], min_reward: float) -> Iterator[Agreement]:
    """Yield the agreement of every two sources that labelled the same traces, most traces first.

    ``labels``: of all sources; a source's last label of a trace counts. Those without a source are left out.
    """
    by_trace: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    for label in labels:
        if label.source:
            by_trace[label.id][label.source] = label.is_kept(min_reward)
    pairs: defaultdict[tuple[str, str], list[tuple[bool, bool]]] = defaultdict(list)
    for kept in by_trace.values():
        for first, second in combinations(sorted(kept), 2):
            pairs[first, second].append((kept[first], kept[second]))
    for sources, both in sorted(pairs.items(), key=lambda item: (-len(item[1]), item[0])):
        yield Agreement(sources, len(both), sum(one == other for one, other in both), _kappa(both))


def _kappa(both: list[tuple[bool, bool]]) -> float | None:
    if len({kept for pair in both for kept in pair}) == 1:
        return None
    with extra("policy"):
        from sklearn.metrics import cohen_kappa_score  # noqa: PLC0415 - slow to import, and of an extra

    return float(cohen_kappa_score(*zip(*both, strict=True)))
