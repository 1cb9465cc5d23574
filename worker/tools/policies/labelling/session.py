"""What a labeller has done and has still to do."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.labelling.label_file import LabelFile
from knowledgepulse_worker.tools.policies.labels import Label

Verdict = Literal["keep", "drop", "skip"]


@dataclass(frozen=True)
class ToLabel:
    """A trace to label."""

    record: ScoredRecord  # its score under the policy to label for
    value: bytes | None  # its JSON; None if only the record's shortened content is at hand


class Session:
    """Hand out one trace at a time, and write its label before the next.

    The session continues after the labeller's last label. What was skipped comes again after all others.

    Args:
        traces: in the order to label them.
        by: who labels, the labels' ``source``.

    Attributes:
        revision: number of changes so far, which tells an outdated page.
        total: number of traces.
        labelled: the traces that had a label at the start, with it.
    """

    def __init__(self, traces: Sequence[ToLabel], file: LabelFile, by: str) -> None:
        self.revision = 0
        self.total = len(traces)
        self.by = by
        self.file = file
        given = {label.id: bool(label.keep) for label in file.labels if label.source == by}
        done = [number for number, one in enumerate(traces) if one.record.id in given]
        after = done[-1] + 1 if done else 0
        self.labelled = [(traces[number], given[traces[number].record.id]) for number in done]
        self._kept = {one.record.id: keep for one, keep in self.labelled}
        in_order = [*traces[after:], *traces[:after]]
        self._waiting = deque(one for one in in_order if one.record.id not in given)
        self._decided: list[tuple[ToLabel, Verdict]] = []

    @property
    def current(self) -> ToLabel | None:
        """The trace to label now; None when all are labelled."""
        return self._waiting[0] if self._waiting else None

    @property
    def counts(self) -> Counter[bool]:
        """Number of labelled traces that are worth keeping, and of those that are not."""
        return Counter(self._kept.values())

    @property
    def can_undo(self) -> bool:
        """Whether there is a decision to undo."""
        return bool(self._decided)

    def decide(self, verdict: Verdict) -> None:
        """Label or skip the current trace; there must be one.

        Raises:
            InputError: the label cannot be written; the trace remains the current one.
        """
        trace = self._waiting[0]
        if verdict == "skip":
            self._waiting.rotate(-1)
        else:
            keep = verdict == "keep"
            self.file.append(Label(trace.record.id, keep=keep, source=self.by))
            self._waiting.popleft()
            self._kept[trace.record.id] = keep
        self._decided.append((trace, verdict))
        self.revision += 1

    def undo(self) -> None:
        """Return to the trace of the last decision, and remove its label; there must be one."""
        trace, verdict = self._decided.pop()
        if verdict == "skip":
            self._waiting.rotate(1)
        else:
            self.file.remove_last()
            del self._kept[trace.record.id]
            self._waiting.appendleft(trace)
        self.revision += 1
