"""Explain why the brokers no longer serve the worker's client."""

from __future__ import annotations

from knowledgepulse_kafka.client import InconsistentGroupProtocolError
from knowledgepulse_kafka.errors import SecurityError
from knowledgepulse_kafka.rights import denied_right
from knowledgepulse_worker.errors import WorkerError


def explained(error: BaseException, group: str) -> WorkerError | SecurityError:
    """Return the error to report for an error of the group member."""
    if isinstance(error, InconsistentGroupProtocolError):
        return WorkerError(
            f"kafka.group: {group}: workers of a release before 0.3.0, or another application, are members "
            "of this group; stop them first"
        )
    return denied_right(error, "Read") or WorkerError(f"consumer group: {error!r}")
