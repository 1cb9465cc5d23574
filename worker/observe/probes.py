"""What an orchestrator asks: whether the worker is alive, and whether it is ready.

Kubernetes restarts what is not alive, and goes on with a rollout once a new one is ready.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus

LIVE, READY = "/livez", "/readyz"
HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-store"}

_STEPS = {
    "partitions": "the group has not shared out its partitions yet",
    "ledgers": "the ledgers of the partitions are not recovered yet",
}


class Readiness:
    """What is still to be done until a worker is ready; once it was, it stays so.

    A broker that goes away later does not change that: no other worker could do more.
    """

    def __init__(self) -> None:
        self._to_do = dict(_STEPS)

    def done(self, step: str) -> None:
        """Note that a step, ``partitions`` or ``ledgers``, was done once."""
        self._to_do.pop(step, None)

    @property
    def reasons(self) -> list[str]:
        """Why it is not ready; empty when it is."""
        return list(self._to_do.values())


def live() -> tuple[HTTPStatus, bytes]:
    """Answer :data:`LIVE`: a worker that is stuck is restarted by its parent, which is who answers."""
    return HTTPStatus.OK, b'{"live": true}'


def ready(reasons: Sequence[str]) -> tuple[HTTPStatus, bytes]:
    """Answer :data:`READY`.

    Args:
        reasons: why it is not ready; empty when it is.
    """
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return status, json.dumps({"ready": not reasons, "reasons": list(reasons)}).encode()
