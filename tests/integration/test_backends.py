"""Runs of a backend on the raw topic, each once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from support.backends import AgentRun, FakePhoenix
from support.streams import ended

pytestmark = pytest.mark.integration

RUNS = 110
"""More pages of 20 runs than kills."""
LINES = 2
"""Lines of a state before the first page of a pull is recorded."""
MOMENTS = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Seconds between a page's record in the state and the kill."""


@pytest.fixture
async def stream(make_stream):
    return await make_stream(2)


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def pull(state):
    """Return the command that publishes the new runs of a backend."""
    return lambda fake, url: f"pull {fake.name} {url} --publish --state {state} --settle 0"


async def runs_on(stream):
    """Return the runs whose traces consumers of committed records get, in the order of the topic."""
    return [
        json.loads(record.value)["metadata"]["pulled_from"]["run"]
        for record in await stream.read(stream.settings.topics.raw)
    ]


async def test_a_pull_that_is_killed_again_and_again_publishes_each_run_once(stream, pull, state):
    """Killed after a page was recorded: before its transaction, in it and after it."""
    fake = FakePhoenix()
    fake.runs = [AgentRun(number) for number in range(RUNS)]

    async def after_a_page(seconds, program):
        while not (state.exists() and state.read_bytes().count(b"\n") > LINES):
            assert program.process.returncode is None, program.log()
            await asyncio.sleep(0.001)
        await asyncio.sleep(seconds)

    moments = [partial(after_a_page, seconds) for seconds in MOMENTS]
    async with fake.served() as url:
        assert await stream.killed(*moments, ended, command=pull(fake, url)) == len(MOMENTS)
    assert sorted(await runs_on(stream)) == sorted(run.id for run in fake.runs)
