"""Explain why the brokers no longer serve the worker's client."""

from __future__ import annotations

from collections.abc import Sequence

from knowledgepulse_kafka.aiokafka_types import InconsistentGroupProtocolError, InvalidSessionTimeoutError
from knowledgepulse_kafka.errors import SecurityError
from knowledgepulse_kafka.request_waits import GROUP_IS_FULL
from knowledgepulse_kafka.rights import denied_right
from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.errors import WorkerError


def explained(error: BaseException, group: str, waits: Sequence[Wait]) -> WorkerError | SecurityError:
    """Return the error to report for an error of the group member.

    Args:
        error: the client's error.
        group: the group's name.
        waits: the errors that the coordinator gave last; the client does not know all of them.
    """
    if isinstance(error, InconsistentGroupProtocolError):
        return WorkerError(
            f"kafka.group: {group}: workers of a release before 0.3.0, or another application, are members "
            "of this group; stop them first"
        )
    if isinstance(error, InvalidSessionTimeoutError):
        return WorkerError(
            "kafka.session_timeout: the brokers do not accept it; it must be within their "
            "group.min.session.timeout.ms and group.max.session.timeout.ms"
        )
    if any(wait.error == GROUP_IS_FULL for wait in waits):
        return WorkerError(f"kafka.group: {group}: it is full (group.max.size of the brokers)")
    told = "; ".join(map(str, waits)) or repr(error)
    return denied_right(error, "Read") or WorkerError(f"consumer group: {told}")
