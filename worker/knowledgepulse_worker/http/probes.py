"""Liveness and readiness probes.

Kubernetes restarts a pod that is not alive and continues a rollout once a new pod is ready.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus

LIVE, READY = "/livez", "/readyz"
HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-store"}

_STEPS = {
    "partitions": "partitions are not assigned yet",
    "ledgers": "ledgers are not recovered yet",
}


class Readiness:
    """Tracks the steps until a worker is ready. A ready worker stays ready.

    Losing the broker later does not change that, since no other worker could do better.
    """

    def __init__(self) -> None:
        self._pending = dict(_STEPS)

    def done(self, step: str) -> None:
        """Mark a step, ``partitions`` or ``ledgers``, as done."""
        self._pending.pop(step, None)

    @property
    def reasons(self) -> list[str]:
        """The reasons why the worker is not ready; empty if it is."""
        return list(self._pending.values())


def live() -> tuple[HTTPStatus, bytes]:
    """Respond to :data:`LIVE`; always alive, because the parent process restarts a stuck worker itself."""
    return HTTPStatus.OK, b'{"live": true}'


def ready(reasons: Sequence[str], **more: object) -> tuple[HTTPStatus, bytes]:
    """Respond to :data:`READY`.

    Args:
        reasons: the reasons why the worker is not ready; empty if it is.
        **more: further members of the response.
    """
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return status, json.dumps({"ready": not reasons, "reasons": list(reasons), **more}).encode()
