"""Send a request again while a server gives no answer, with increasing pauses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import ClientConnectorError, ClientError

from knowledgepulse_kafka.http_client import reason

FIRST_WAIT = 1.0
"""Seconds before a request is sent again for the first time; each later pause is twice as long."""

_T = TypeVar("_T")


class NoAnswerError(Exception):
    """A server gave no final answer: the request may be sent again.

    Attributes:
        seconds: the time after which the server wants to be asked again; None if it did not say.
        reason: a name for this kind of problem.
        waited: the seconds for which the request was repeated.
    """

    waited = 0.0

    def __init__(self, problem: str, seconds: float | None = None, reason: str = "") -> None:
        super().__init__(problem)
        self.seconds = seconds
        self.reason = reason


def no_answer(error: ClientError | TimeoutError) -> NoAnswerError:
    """Return the error for a request without any answer; its reason is timeout, unreachable or closed."""
    if isinstance(error, TimeoutError):
        kind = "timeout"
    else:
        kind = "unreachable" if isinstance(error, ClientConnectorError) else "closed"
    return NoAnswerError(reason(error), reason=kind)


class StoppedError(Exception):
    """The command was told to stop while it waited."""


WaitFunction = Callable[[float, NoAnswerError], Awaitable[None]]
"""Waits for a number of seconds before a request is sent again, and is told why."""


async def until_answered(
    ask: Callable[[], Awaitable[_T]], wait: WaitFunction, *, longest: float, patience: float | None = None
) -> _T:
    """Return the result of a request once it does not raise a NoAnswerError.

    Args:
        ask: sends the request.
        wait: waits before it is sent again.
        longest: seconds of the longest pause, unless the server asks for more. Pauses vary by a quarter, so
            that clients of one server spread.
        patience: seconds after which the last NoAnswerError is raised; None for no limit.
    """
    waited, pause = 0.0, FIRST_WAIT
    while True:
        try:
            return await ask()
        except NoAnswerError as error:
            seconds = pause * random.uniform(0.75, 1) if error.seconds is None else error.seconds  # noqa: S311 - no secret
            if patience is not None and waited + seconds > patience:
                error.waited = waited
                raise
            await wait(seconds, error)
            waited, pause = waited + seconds, min(2 * pause, longest)


async def sleep_until_stopped(seconds: float, stop: asyncio.Event) -> None:
    """Sleep; raise a StoppedError once a command is told to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
    raise StoppedError
