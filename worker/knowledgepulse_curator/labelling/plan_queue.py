"""The traces of a plan, handed out look by look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest

from knowledgepulse_curator.labelling.label_session import ToLabel
from knowledgepulse_curator.labels.labels import Label
from knowledgepulse_curator.promises.plan import Plan, Progress, chosen_by, plan_lines, progress


class PlanQueue:
    """Hand out the traces that a plan asks for next, of all domains in turns.

    Args:
        plan: the plan.
        traces: the traces of its steps.
        labels: those that were given before, by the labels' kind.
    """

    def __init__(self, plan: Plan, traces: Sequence[ToLabel], labels: Iterable[Label]) -> None:
        self.plan = plan
        self._traces = {trace.record.id: trace for trace in traces}
        self._records = {trace.record.id: trace.record for trace in traces}
        self._labels = chosen_by(plan, labels)
        self._handed_out: set[str] = set()

    @property
    def found(self) -> dict[str, Progress]:
        """How far the labels of each domain with a plan are."""
        domains = [name for name, steps in self.plan.domains.items() if steps]
        return {name: progress(self.plan, name, self._records, self._labels) for name in domains}

    @property
    def lines(self) -> Iterator[str]:
        """Sentences on what is promised, and what comes next."""
        return plan_lines(self.plan, self.found)

    def waiting(self) -> list[ToLabel]:
        """Return the traces that are asked for and were not handed out yet."""
        of_each = (of_domain.waiting for of_domain in self.found.values())
        names = [name for name in chain.from_iterable(zip_longest(*of_each)) if name is not None]
        new = [self._traces[name] for name in names if name not in self._handed_out]
        self._handed_out.update(trace.record.id for trace in new)
        return new

    def answered(self, label: Label) -> list[ToLabel]:
        """Take a label, and return the traces that are asked for because of it."""
        self._labels |= chosen_by(self.plan, [label])
        return self.waiting()

    def forget(self, trace_id: str) -> None:
        """Take a label back."""
        self._labels.pop(trace_id, None)
