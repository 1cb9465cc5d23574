"""Requests are sent again with increasing pauses, as long as the server or the caller's patience says."""

from __future__ import annotations

import asyncio

import pytest

from knowledgepulse_worker.tools.common.retries import (
    NoAnswerError,
    StoppedError,
    sleep_until_stopped,
    until_answered,
)


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def ask(pauses):
    """Return a function that sends a request to a server that first has no answer some times."""

    async def wait(seconds, _problem):
        pauses.append(seconds)

    async def asked(times, seconds=None, **limits):
        problems = iter([NoAnswerError("busy", seconds)] * times)

        async def request():
            for problem in problems:
                raise problem
            return "answer"

        return await until_answered(request, wait, **limits)

    return asked


async def test_pauses_double_up_to_the_longest_and_vary_by_a_quarter(ask, pauses):
    assert await ask(6, longest=10) == "answer"
    for pause, longest in zip(pauses, [1, 2, 4, 8, 10, 10], strict=True):
        assert 0.75 * longest <= pause <= longest


async def test_a_server_is_asked_again_when_it_says(ask, pauses):
    assert await ask(2, seconds=70, longest=10) == "answer"
    assert pauses == [70, 70]


async def test_patience_ends_with_the_last_problem_and_the_time_waited(ask, pauses):
    with pytest.raises(NoAnswerError, match="busy") as ended:
        await ask(5, seconds=7, longest=10, patience=20)
    assert pauses == [7, 7]
    assert ended.value.waited == 14


async def test_a_stop_ends_the_sleep():
    stop = asyncio.Event()
    await sleep_until_stopped(0, stop)
    stop.set()
    with pytest.raises(StoppedError):
        await sleep_until_stopped(3600, stop)
