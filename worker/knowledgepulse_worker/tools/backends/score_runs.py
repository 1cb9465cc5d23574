"""Score the runs of a backend, and write the scores back into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from knowledgepulse_convert import Options
from knowledgepulse_worker.errors import InputError, InvalidRecordError
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.backends.backend import SCORES_TOGETHER, Backend, RunScore, batches
from knowledgepulse_worker.tools.backends.pull_runs import Pull, PullRules
from knowledgepulse_worker.tools.backends.pull_state import PullState
from knowledgepulse_worker.tools.backends.run_scores import read_scored, run_in, run_score
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport
from knowledgepulse_worker.tools.terminal.arguments import milliseconds
from knowledgepulse_worker.tools.terminal.console import errors, tell


@dataclass(frozen=True)
class ScoredRun:
    """A run's trace, as JSON, and its score."""

    value: bytes
    scored: ScoredRecord

    def record(self, backend: Backend) -> ScoredRecord:
        """Return the score by the name that the run has in the backend."""
        return replace(self.scored, source=run_in(backend, read_scored(self.value)) or self.scored.id)


async def score_runs(
    backend: Backend, since: datetime | None, score: Callable[[bytes], ScoredRecord]
) -> list[ScoredRun]:
    """Score all runs of a backend that have ended, in the order of their starts.

    Raises:
        InputError: the backend refuses or has no run that can be scored.
        SecurityError: it refuses the key.
    """
    rules = PullRules(Options(), since_ms=milliseconds(since), settle_ms=0)
    pull = Pull(backend, PullState(None, backend.name), rules, ConversionReport(), _tell)
    runs = list[ScoredRun]()
    async for page in pull.pages():
        for trace in page.traces:
            value = trace.to_json()
            try:
                runs.append(ScoredRun(value, score(value)))
            except InvalidRecordError as error:
                _tell(trace.id, str(error))
    if pull.waiting:
        errors.print(f"{counted(pull.waiting, 'run')} left out, as they have not ended")
    if not runs:
        raise InputError("the backend has no run that can be scored")
    return runs


async def write_scores(backend: Backend, runs: Sequence[ScoredRun], policy: str) -> int:
    """Write the scores into the backend; return the number of those that it refused, which are named.

    Writing again replaces what was written, so that a crash repeats and loses nothing.

    Raises:
        InputError: the backend does not answer.
        SecurityError: it refuses the key.
    """
    traces = {run.scored.id: read_scored(run.value) for run in runs}
    scores: list[RunScore] = []
    best_first = sorted(runs, key=lambda run: -run.scored.score.quality_score)
    for rank, run in enumerate(best_first, start=1):
        score = run.scored.score
        nearest = traces.get(score.nearest or "")
        nearest_run = None if nearest is None else run_in(backend, nearest)
        details = {
            "policy": policy,
            "rank": f"{rank} of {len(runs)}",
            "nearest_run": nearest_run,
            "nearest_link": None if nearest_run is None else backend.link(nearest_run),
        }
        made = run_score(backend, traces[run.scored.id], score, details)
        if made is not None:
            scores.append(made)
    refused = 0
    for batch in batches(scores, SCORES_TOGETHER):
        for refusal in await backend.send(batch):
            refused += 1
            tell(f"{refusal.score.run}: score refused: {refusal.reason}")
    errors.print(f"{counted(len(scores) - refused, 'score')} written to {backend.name}")
    return refused


def _tell(run: str, problem: str) -> None:
    tell(f"{run}: not scored: {problem}")
