"""Recent events for the status page, in bounded ring buffers.

Lanes report every record, so recording takes only microseconds, keeps only excerpts of producers' texts, and
never raises into a lane.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from worker.scoring import Decision

logger = logging.getLogger(__name__)

LAST_SCORES = 1000
"""Number of traces whose scores and times are kept."""

LAST_RECORDS = 20
"""Number of rejected traces, and of dead letters, that are kept with their details."""

SECONDS = 60
"""Number of whole seconds that rates are computed over."""

MAX_TEXT = 200
"""Maximum length of an excerpt of an id, an objective or a message."""

# Length of text to make an excerpt from: normalising the white space of megabytes would take too long.
_MAX_READ = 4 * MAX_TEXT


class Origin(NamedTuple):
    """Where a published trace came from, and its decision."""

    agent_id: str | None
    framework: str | None
    decision: Decision


class Recent:
    """The latest scores, times, origins, rejected traces and dead letters.

    Attributes:
        scores: ``(domain, score)`` of published traces.
        scoring_seconds: times from admission to score.
        end_to_end_seconds: times from a record's timestamp to its confirmed output.
        origins: origins of published traces.
        rejected: rejected traces, with the details passed to :meth:`finished`.
        dead_letters: dead letters, with the same details.
    """

    def __init__(self) -> None:
        self.scores: deque[tuple[str, float]] = deque(maxlen=LAST_SCORES)
        self.scoring_seconds: deque[float] = deque(maxlen=LAST_SCORES)
        self.end_to_end_seconds: deque[float] = deque(maxlen=LAST_SCORES)
        self.origins: deque[Origin] = deque(maxlen=LAST_SCORES)
        self.rejected: deque[dict[str, Any]] = deque(maxlen=LAST_RECORDS)
        self.dead_letters: deque[dict[str, Any]] = deque(maxlen=LAST_RECORDS)
        self._seconds: deque[tuple[int, Counter[str]]] = deque(maxlen=SECONDS + 1)

    def scored(self, seconds: float) -> None:
        """Record the time from a record's admission to its score."""
        self.scoring_seconds.append(seconds)

    def decided(self, agent_id: str | None, framework: str | None, decision: Decision) -> None:
        """Record the origin of a published trace."""
        self.origins.append(Origin(excerpt(agent_id), excerpt(framework), decision))

    def finished(
        self,
        outcome: str,
        source: str,
        *,
        score: Mapping[str, Any] | None,
        failure: Mapping[str, str] | None,
        trace_id: str | None,
        objective: str | None,
        end_to_end: float | None,
    ) -> None:
        """Record a confirmed output.

        Args:
            outcome: contribute, rejected or dead_letter.
            source: ``topic/partition/offset`` of the raw record.
            score: the fields of its ``kp-score``; None if it was not scored.
            failure: reason, exception and message of a dead letter, else None.
            trace_id: the trace's id; None if the record could not be decoded.
            objective: the trace's objective; also None if it was republished from its ledger entry.
            end_to_end: seconds from the record's timestamp; None if it has no timestamp.
        """
        try:
            self._count(outcome)
            if end_to_end is not None:
                self.end_to_end_seconds.append(max(0.0, end_to_end))
            if score is not None and failure is None:
                self.scores.append((score["domain"], score["score"]))
            if outcome == "contribute":
                return
            record = {
                "source": source,
                "at": time.time(),
                "trace_id": excerpt(trace_id),
                "objective": excerpt(objective),
                "score": None if score is None else {**score, "nearest": excerpt(score["nearest"])},
            }
            if failure is None:
                self.rejected.append(record)
            else:
                self.dead_letters.append({**record, **failure, "message": excerpt(failure["message"])})
        except Exception as error:  # noqa: BLE001 - the status page must not fail a lane
            # Do not log the error's text, which may quote the trace.
            logger.error("the status page lost %s: %s", source, type(error).__name__)  # noqa: TRY400

    def per_second(self) -> list[Counter[str]]:
        """Return the outcome counts of the last whole seconds, oldest first."""
        counts = dict(self._seconds)
        now = int(time.monotonic())
        return [counts.get(second, Counter()) for second in range(now - SECONDS, now)]

    def _count(self, outcome: str) -> None:
        now = int(time.monotonic())
        if not self._seconds or self._seconds[-1][0] != now:
            self._seconds.append((now, Counter()))
        self._seconds[-1][1][outcome] += 1


def excerpt(text: str | None) -> str | None:
    """Return the beginning of a text on one line, without lone surrogates."""
    if text is None:
        return None
    line = " ".join(text[:_MAX_READ].split())
    cut = line if len(line) <= MAX_TEXT and len(text) <= _MAX_READ else f"{line[: MAX_TEXT - 1]}…"
    return cut.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
