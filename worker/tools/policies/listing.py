"""One-line renderings of scored traces; text from producers is escaped."""

from __future__ import annotations

import json

from worker.scoring import ScoredRecord
from worker.terminal.text import printable, time_text

_COLUMNS = "{:24}  {:24}  {:16}  {:6}  {:10}  {}"
HEAD = _COLUMNS.format("SOURCE", "TIME", "DOMAIN", "SCORE", "DECISION", "ID")


def row(record: ScoredRecord) -> str:
    """Format a trace as a table row below :data:`HEAD`."""
    return _COLUMNS.format(
        printable(record.source),
        "-" if record.timestamp_ms is None else time_text(record.timestamp_ms),
        printable(record.score.domain),
        f"{record.score.quality_score:.4f}",
        record.score.decision,
        printable(record.id),
    )


def as_json(record: ScoredRecord) -> str:
    """Format a trace as a line of ASCII JSON."""
    return json.dumps(
        {
            "source": record.source,
            "timestamp_ms": record.timestamp_ms,
            "id": record.id,
            "task_domain": record.task_domain,
            "visibility": record.visibility,
            "policy": record.policy,
            **record.score.as_dict(),
            "decision": record.score.decision,
        }
    )
