"""What happened last, for the status page: a few bounded rings in memory.

A lane tells of every record, so this costs microseconds, keeps no more than excerpts of what producers
wrote, and an error in it never reaches the lane.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger(__name__)

LAST_SCORES = 1000
"""Of so many traces the score and the times are kept."""

LAST_RECORDS = 20
"""So many rejected traces, and so many dead letters, are kept with their parts."""

SECONDS = 60
"""Rates are over so many whole seconds."""

MAX_TEXT = 200
"""Characters of an id, an objective or a message."""

# An excerpt is taken from so much: looking through the whole of a megabyte for white space would show.
_MAX_READ = 4 * MAX_TEXT


class Recent:
    """The last scores, times, rejected traces and dead letters.

    Attributes:
        scores: ``(domain, score)`` of published traces.
        scoring_seconds: from admission to score.
        end_to_end_seconds: from a record's timestamp to its confirmed output.
        rejected: the traces below the threshold, as :meth:`finished` describes them.
        dead_letters: likewise.
    """

    def __init__(self) -> None:
        self.scores: deque[tuple[str, float]] = deque(maxlen=LAST_SCORES)
        self.scoring_seconds: deque[float] = deque(maxlen=LAST_SCORES)
        self.end_to_end_seconds: deque[float] = deque(maxlen=LAST_SCORES)
        self.rejected: deque[dict[str, Any]] = deque(maxlen=LAST_RECORDS)
        self.dead_letters: deque[dict[str, Any]] = deque(maxlen=LAST_RECORDS)
        self._seconds: deque[tuple[int, Counter[str]]] = deque(maxlen=SECONDS + 1)

    def scored(self, seconds: float) -> None:
        """A record was scored, so long after its admission."""
        self.scoring_seconds.append(seconds)

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
        """A record's output was confirmed.

        Args:
            outcome: contribute, rejected or dead_letter.
            source: ``topic/partition/offset`` of the raw record.
            score: the members of its ``kp-score``; None when it was not scored.
            failure: reason, exception and message of a dead letter, else None.
            trace_id: None when the record could not be decoded.
            objective: None too when it was published again from its ledger entry.
            end_to_end: seconds; None when the record has no timestamp.
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
                "trace_id": _excerpt(trace_id),
                "objective": _excerpt(objective),
                "score": None if score is None else {**score, "nearest": _excerpt(score["nearest"])},
            }
            if failure is None:
                self.rejected.append(record)
            else:
                self.dead_letters.append({**record, **failure, "message": _excerpt(failure["message"])})
        except Exception as error:  # noqa: BLE001 - a page is not worth a lane
            # Without the error's text, which may quote the trace.
            logger.error("the status page missed %s: %s", source, type(error).__name__)  # noqa: TRY400

    def per_second(self) -> list[Counter[str]]:
        """Count the outcomes of each of the last whole seconds, oldest first."""
        counts = dict(self._seconds)
        now = int(time.monotonic())
        return [counts.get(second, Counter()) for second in range(now - SECONDS, now)]

    def _count(self, outcome: str) -> None:
        now = int(time.monotonic())
        if not self._seconds or self._seconds[-1][0] != now:
            self._seconds.append((now, Counter()))
        self._seconds[-1][1][outcome] += 1


def _excerpt(text: str | None) -> str | None:
    """Return the beginning of a text on one line, fit for UTF-8."""
    if text is None:
        return None
    line = " ".join(text[:_MAX_READ].split())
    cut = line if len(line) <= MAX_TEXT and len(text) <= _MAX_READ else f"{line[: MAX_TEXT - 1]}…"
    return cut.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
