"""The groups of traces that are not independent, such as the runs of one task.

If one run of a task is among the traces that a value was fitted to and another run is among those that it is
tested on, labels that depend on the task alone look as if they depended on the run. Labels seldom name their
groups, so these are found, in this order:

1. The group that a label gives. Traces that the next two rules join to it belong to it, too.
2. Equal objectives, but for white space: the runs of a task usually have the same.
3. Near vectors: a trace whose objective no other trace has joins the earlier trace that its score names as
   the nearest, if their cosine similarity is at least :data:`NEAR`.
4. Any other trace is a group of its own.

``tests/policies/README.md`` tells how well this works.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.labels import Label

with extra("policy"):
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

NEAR = 0.8
"""The least cosine similarity of two traces that are taken for runs of one task."""

LARGEST_SHARE = 0.1
LARGEST = 10
"""If near vectors join more than this share of the traces and more than this number into one group, the
vectors do not tell tasks apart, and are not used."""

Origin = Literal["given", "equal objective", "near vector", "alone"]
"""How the group of a trace was found."""

ORIGINS: tuple[Origin, ...] = get_args(Origin)

Link = tuple[int, int]


def groups_of(records: Sequence[ScoredRecord], labels: Sequence[Label | None]) -> list[tuple[str, Origin]]:
    """Return the group of each trace, and how it was found.

    Args:
        records: the traces. Those without a label may join others that have one.
        labels: the label of each trace; None without one.
    """
    equal_links = [*_equal(records, labels)]
    equal = _components(len(records), equal_links)
    is_single = np.bincount(equal)[equal] == 1
    near_links = [link for link in _near(records) if is_single[link[0]]]
    joined = _components(len(records), [*equal_links, *near_links])
    if np.bincount(joined).max() > max(LARGEST, LARGEST_SHARE * len(records), np.bincount(equal).max()):
        joined = equal
    is_alone = np.bincount(joined)[joined] == 1
    given = _given(joined, labels)
    groups = list[tuple[str, Origin]]()
    for number, label in enumerate(labels):
        component = int(joined[number])
        if label is not None and label.group is not None:
            groups.append((_name(label), "given"))
            continue
        origin: Origin = "near vector" if is_single[number] else "equal objective"
        groups.append((given.get(component, f"found {component}"), "alone" if is_alone[number] else origin))
    return groups


def _equal(records: Sequence[ScoredRecord], labels: Sequence[Label | None]) -> Iterator[Link]:
    """Yield each trace with the first one of its task, and with the first one that has its label."""
    first: dict[tuple[str, str], int] = {}
    for number, (record, label) in enumerate(zip(records, labels, strict=True)):
        if record.task is not None:
            yield number, first.setdefault(("task", record.task), number)
        if label is not None:  # a label may name a run, which has several traces
            yield number, first.setdefault(("label", label.id), number)


def _near(records: Sequence[ScoredRecord]) -> Iterator[Link]:
    """Yield each trace with its nearest earlier one, if that is near."""
    numbers = {record.id: number for number, record in enumerate(records)}
    for number, record in enumerate(records):
        nearest = numbers.get(record.score.nearest or "")
        if nearest is not None and 1 - record.score.novelty >= NEAR:
            yield number, nearest


def _components(count: int, links: Iterable[Link]) -> NDArray[Any]:
    """Return the index of each trace's group, shape (count,)."""
    ends = np.array([*links], np.intp).reshape(-1, 2).T
    joined = coo_array((np.ones(len(ends[0]), bool), (ends[0], ends[1])), shape=(count, count))
    index: NDArray[Any] = connected_components(joined, directed=False)[1]
    return index


def _given(joined: NDArray[Any], labels: Sequence[Label | None]) -> dict[int, str]:
    """Return the most frequent given group of each group that was found."""
    names: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for component, label in zip(joined.tolist(), labels, strict=True):
        if label is not None and label.group is not None:
            names[component][_name(label)] += 1
    return {component: counts.most_common(1)[0][0] for component, counts in names.items()}


def _name(label: Label) -> str:
    return f"given {label.group}"
