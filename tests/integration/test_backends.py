"""Runs of a backend on the raw topic, each once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from knowledgepulse_worker.settings import render
from support.backends import AgentRun, FakeLangfuse, FakePhoenix

pytestmark = pytest.mark.integration

LIMIT = 120
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
async def pull(stream, state, tmp_path):
    """Start the command, which publishes the new runs of a backend."""
    config = tmp_path / "worker.toml"
    config.write_text(render(stream.settings))

    started = []

    async def start(fake, url):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "knowledgepulse_worker.cli.entry", "pull", fake.name, url),
            *("--config", config, "--publish", "--state", state, "--settle", "0"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def finished(process):
    """Wait for the end of a command; return its status and what it said."""
    async with asyncio.timeout(LIMIT):
        _, errors = await process.communicate()
    return process.returncode, errors.decode()


async def runs_on(stream):
    """Return the runs whose traces consumers of committed records get, in the order of the topic."""
    return [
        json.loads(record.value)["metadata"]["pulled_from"]["run"]
        for record in await stream.read(stream.settings.topics.raw)
    ]


@pytest.mark.parametrize("fake", [FakePhoenix, FakeLangfuse], ids=lambda fake: fake.name)
async def test_new_runs_are_published_once(stream, pull, fake, monkeypatch):
    for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"):
        monkeypatch.setenv(name, "hidden")
    backend = fake()
    backend.runs = [AgentRun(number) for number in range(3)]
    async with backend.served() as url:
        for added in (0, 1, 0):
            backend.runs += [AgentRun(10 + number) for number in range(added)]
            status, said = await finished(await pull(backend, url))
            assert (status, "hidden" in said) == (0, False), said
    assert sorted(await runs_on(stream)) == sorted(backend.run_id(run) for run in backend.runs)


async def test_a_pull_that_is_killed_again_and_again_publishes_each_run_once(stream, pull, state):
    """Killed after a page was recorded: before its transaction, in it and after it."""
    fake = FakePhoenix()
    fake.runs = [AgentRun(number) for number in range(RUNS)]
    async with fake.served() as url:
        for moment in MOMENTS:
            process = await pull(fake, url)
            async with asyncio.timeout(LIMIT):
                while not (state.exists() and state.read_bytes().count(b"\n") > LINES):
                    assert process.returncode is None
                    await asyncio.sleep(0.001)
            await asyncio.sleep(moment)
            process.kill()
            await process.communicate()
        status, said = await finished(await pull(fake, url))
    assert status == 0, said
    assert sorted(await runs_on(stream)) == sorted(run.id for run in fake.runs)
