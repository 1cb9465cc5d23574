"""Pull the runs of a backend that are new, and convert them to traces."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from knowledgepulse_convert import ConversionError, Options, RunOutcome, convert
from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.tools.backends.backend import (
    FAULTS,
    Backend,
    RunContent,
    RunListing,
    batches,
    fault_text,
)
from knowledgepulse_worker.tools.backends.pull_state import PullState
from knowledgepulse_worker.tools.backends.read_runs import RunReader, UnreadableRun, listed_runs
from knowledgepulse_worker.tools.backends.run_scores import pulled_from
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport
from knowledgepulse_worker.tools.terminal.console import errors

_BATCH = 20
"""Number of runs whose content is in memory at a time."""


@dataclass(frozen=True)
class PullRules:
    """What is pulled.

    Attributes:
        options: the options of the conversion.
        since_ms: the start time of the oldest runs of the first pull; None for all.
        until_ms: the start time before which runs are pulled; None for all.
        agent: the only agent whose runs are wanted; None for all.
        settle_ms: how long ago the last thing in a run must have ended, as parts of it may arrive late.
        late_ms: how long after other runs a run may arrive or end, and still be taken by the next pull.
    """

    options: Options
    since_ms: int | None = None
    until_ms: int | None = None
    agent: str | None = None
    settle_ms: int = 30_000
    late_ms: int = 3_600_000


class PulledPage(NamedTuple):
    """Runs that were read, and the traces that were made of them.

    Attributes:
        listings: the runs, which count as taken once the traces are safe.
        traces: the traces, with `metadata.pulled_from`.
    """

    listings: list[RunListing]
    traces: list[ReasoningTrace]


class Pull:
    """A pull of a backend's new runs.

    Attributes:
        waiting: the number of runs that have not ended, and that a later pull takes.
    """

    def __init__(
        self,
        backend: Backend,
        state: PullState,
        rules: PullRules,
        report: ConversionReport,
        tell: Callable[[str, str], None],
        now_ms: int | None = None,
    ) -> None:
        self.waiting = 0
        self._backend, self._state, self._rules, self._report = backend, state, rules, report
        self._tell = tell
        self._reader = RunReader(backend)
        self._read = 0
        self._progress = LogInterval()
        self._progress.let_pass(backend.name)  # the first line comes after an interval
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._newest: int | None = None
        self._oldest_waiting: int | None = None

    async def pages(self) -> AsyncIterator[PulledPage]:
        """Yield the new runs; the caller records each page in the state once its traces are safe."""
        since = self._rules.since_ms if self._state.since_ms is None else self._state.since_ms
        seen = set[str]()
        async for listed in listed_runs(self._backend, since):
            until = self._rules.until_ms
            for listing in listed:
                if listing.problem is None and listing.started_ms <= self._now_ms:
                    self._newest = max(listing.started_ms, self._newest or 0)
            new = [
                listing
                for listing in listed
                if listing.id not in self._state.taken
                and listing.id not in seen
                and (until is None or listing.started_ms < until or listing.problem is not None)
            ]
            seen.update(listing.id for listing in new if listing.id)
            for batch in batches(new, _BATCH):
                yield await self._page(batch)
                self._read += len(batch)
                if self._progress.let_pass(self._backend.name):
                    errors.print(f"{counted(self._read, 'run')} read so far")

    async def _page(self, batch: Sequence[RunListing]) -> PulledPage:
        page = PulledPage([], [])
        async for found in self._reader.read(batch):
            if isinstance(found, UnreadableRun):
                self._pass_over(found.listing, found.problem)
            elif self._waits(found):
                self.waiting += 1
                started = found.listing.started_ms
                self._oldest_waiting = min(started, self._oldest_waiting or started)
                continue
            else:
                page.traces.extend(self._traces(found))
            if found.listing.id:
                page.listings.append(found.listing)
        return page

    def _waits(self, content: RunContent) -> bool:
        """Return whether a run has not ended; one without a sign of life for a long time has been cut off.

        One that ended long after now has a wrong clock.
        """
        age, rules = self._now_ms - content.last_ms, self._rules
        return -rules.late_ms <= age < (rules.settle_ms if content.has_ended else rules.late_ms)

    def _pass_over(self, listing: RunListing, problem: str) -> None:
        self._report.failed += 1
        self._tell(listing.id or "a run of the list", problem)

    def _traces(self, content: RunContent) -> list[ReasoningTrace]:
        traces, options = [], self._rules.options
        if content.outcome is not None:
            options = replace(options, outcomes=_OutcomesOfRun(options.outcomes, content.outcome))
        try:
            for conversion in convert(content.document, content.format_name, options):
                if isinstance(conversion, ConversionError):
                    self._pass_over(content.listing, str(conversion))
                elif self._rules.agent in (None, conversion.metadata.agent_id):
                    self._report.count(conversion)
                    document = conversion.trace.model_dump(exclude_unset=True, by_alias=True)
                    document["metadata"] |= pulled_from(self._backend, content.listing.id)
                    traces.append(ReasoningTrace.model_validate(document))
        except FAULTS as fault:
            self._pass_over(content.listing, fault_text(fault))
        return traces

    @property
    def next_since_ms(self) -> int | None:
        """The start time from which the next pull reads."""
        if self._newest is None:
            return self._state.since_ms
        late = self._newest - self._rules.late_ms
        return late if self._oldest_waiting is None else min(late, self._oldest_waiting)


class _OutcomesOfRun(Mapping[str, RunOutcome]):
    """Outcomes by id, of which all other runs have one: that of the run that is converted."""

    def __init__(self, known: Mapping[str, RunOutcome], outcome: RunOutcome) -> None:
        self._known, self._outcome = known, outcome

    def __getitem__(self, name: str) -> RunOutcome:
        return self._known.get(name, self._outcome)

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
