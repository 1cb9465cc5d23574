"""Send scores to a backend, and find those that it refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from knowledgepulse_worker.tools.backends.backend import FAULTS, RunScore, ScoreRefusal, fault_text
from knowledgepulse_worker.tools.backends.backend_client import BackendRefusal

SCORES_TOGETHER = 50
"""Number of scores in a request."""


async def send_each(
    scores: Sequence[RunScore], send: Callable[[RunScore], Awaitable[None]]
) -> list[ScoreRefusal]:
    """Send scores one by one; return those that the backend refused.

    Args:
        scores: the scores.
        send: sends one; raises BackendRefusal, with the status 404 if the backend has no such run.
    """
    refusals = []
    for score in scores:
        try:
            await send(score)
        except BackendRefusal as refused:
            unknown = refused.status == HTTPStatus.NOT_FOUND
            refusals.append(ScoreRefusal(score, "no such run" if unknown else str(refused)))
        except FAULTS as fault:
            refusals.append(ScoreRefusal(score, fault_text(fault), is_fault=True))
    return refusals


async def send_together(
    scores: Sequence[RunScore], send: Callable[[Sequence[RunScore]], Awaitable[None]]
) -> list[ScoreRefusal]:
    """Send scores in one request, and one by one if that is refused; return those that the backend refused.

    ``send``: sends some; raises BackendRefusal if the backend refuses any of them.
    """
    try:
        await send(scores)
    except (BackendRefusal, *FAULTS):
        return await send_each(scores, lambda score: send([score]))
    return []
