"""The groups of labelled traces that are not independent, such as the runs of one task.

If one run of a task is among the traces that a value was fitted to and another run is among those that it is
tested on, labels that depend on the task alone look as if they depended on the run. Labels seldom name their
groups, so these are found, in this order:

1. The group that a label gives.
2. The task's id, if the trace has one (``metadata.task_id``).
3. Equal objectives, but for white space: the runs of a task usually have the same.
4. Similar words: traces whose objective no other has are clustered by the words of their shortened texts, by
   average linkage at the cosine similarity :data:`MIN_SIMILARITY`.
5. Any other trace is a group of its own.

Too large a group costs only certainty; a task in two groups makes a figure too good. Therefore
:data:`MIN_SIMILARITY` is low.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_worker.embedding.lexical import LexicalEmbedder
from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.scoring import PART_SEPARATOR, Content, ScoredRecord

with extra("policy"):
    from scipy.cluster.hierarchy import fcluster, linkage

MIN_SIMILARITY = 0.6
"""The mean cosine similarity from which traces are taken for runs of one task."""

MAX_CLUSTER_SHARE, MAX_CLUSTER_TRACES = 0.15, 10
"""If more than this share of the traces and more than this number are in one cluster, their words do not tell
tasks apart, and clusters are not used."""

MAX_CLUSTERED = 4_000
"""With more traces, clusters are not used, since they take memory by the square of this number."""

GroupOrigin = Literal["given", "the task's id", "equal objective", "similar words", "alone"]
"""How the group of a trace was found."""

_KNOWN = ("given", "the task's id")
GROUP_ORIGINS: tuple[GroupOrigin, ...] = get_args(GroupOrigin)


def groups_of(records: Sequence[ScoredRecord], labels: Sequence[Label]) -> list[tuple[str, GroupOrigin]]:
    """Return the group of each labelled trace, and how it was found."""
    groups = [*_named(records, labels)]
    sizes = Counter(name for name, _ in groups)
    single = [at for at, (name, origin) in enumerate(groups) if origin not in _KNOWN and sizes[name] == 1]
    for at in single:
        groups[at] = groups[at][0], "alone"
    contents = {at: content for at in single if (content := records[at].content) is not None}
    for number, members in enumerate(_clusters([*contents], [*contents.values()])):
        for at in members:
            groups[at] = f"words {number}", "similar words"
    return groups


def _named(records: Sequence[ScoredRecord], labels: Sequence[Label]) -> Iterator[tuple[str, GroupOrigin]]:
    """Yield the given group of each trace, or else that of its objective.

    Traces without a given group belong to that of another trace with their objective, and so do traces with
    the same label, which may name a run of several traces.
    """
    of_task: dict[str, str] = {}
    given = [_known(record, label) for record, label in zip(records, labels, strict=True)]
    for record, known in zip(records, given, strict=True):
        if known is not None and record.task is not None:
            of_task.setdefault(record.task, known[0])
    for record, label, known in zip(records, labels, given, strict=True):
        if known is not None:
            yield known
        elif record.task is not None:
            yield of_task.get(record.task, f"task {record.task}"), "equal objective"
        else:
            yield f"label {label.id}", "equal objective"


def _known(record: ScoredRecord, label: Label) -> tuple[str, GroupOrigin] | None:
    """Return the group that a label gives, or that of the trace's task; None without either."""
    task_id = record.graded.task_id
    if label.group is not None and label.group != task_id:
        return f"given {label.group}", "given"
    return None if task_id is None else (f"id {task_id}", "the task's id")


def _clusters(numbers: Sequence[int], contents: Sequence[Content]) -> Iterator[list[int]]:
    """Yield the numbers of the texts in each cluster of several."""
    if not 2 <= len(contents) <= MAX_CLUSTERED:
        return
    # Runs of one task are alike in these texts; their results differ most.
    texts = [PART_SEPARATOR.join((content.objective, " ".join(content.steps))) for content in contents]
    vectors = LexicalEmbedder().embed(texts).vectors
    distances: NDArray[Any] = 1 - np.clip(vectors @ vectors.T, -1, 1)
    above = distances[np.triu_indices(len(contents), 1)]
    clusters = fcluster(linkage(above, "average"), 1 - MIN_SIMILARITY, "distance")
    if np.bincount(clusters).max() > max(MAX_CLUSTER_TRACES, MAX_CLUSTER_SHARE * len(contents)):
        return
    members: defaultdict[int, list[int]] = defaultdict(list)
    for number, cluster in zip(numbers, clusters.tolist(), strict=True):
        members[cluster].append(number)
    yield from (group for group in members.values() if len(group) > 1)
