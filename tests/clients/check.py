"""What a client delivers, whether a bounded read ends, what lag remains, and where it puts keys."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiokafka.partitioner import murmur2

from clients.client import BOUNDED, PUBLISH, READ, Client
from clients.program import PATIENCE, Program, running
from clients.topic import ScriptedTopic, create, places, scripted_topic

AT_ONCE, LATER, NEVER, FAILED = "at once", "after the transaction", "never", "failed"
"""When a bounded read ends."""

KEYS = [f"agent-{number}" for number in range(1, 25)]
PARTITIONS = (1, 2, 4, 6, 8)


async def check_reads(client: Client, mode: str, bootstrap: str, output: Path) -> dict[str, Any]:
    """Return what the client read of a topic with committed, aborted and open transactions."""
    name = f"scripted-{uuid4()}"
    variables = {"KAFKA": bootstrap, "TOPIC": name, "GROUP": f"group-{uuid4()}"}
    async with scripted_topic(bootstrap, name) as topic, AsyncExitStack() as stack:
        programs = {
            task: await stack.enter_async_context(running(client, task, mode, output, variables))
            for task in (READ, BOUNDED)
            if task in client.tasks
        }
        early = await _settled(programs)
        await topic.end()
        lag = await _lag(client, topic, variables) if READ in programs else None
        late = await _settled(programs)
        return _reads(programs, early, late, lag)


async def _settled(programs: dict[str, Program]) -> dict[str, int | None]:
    statuses = await asyncio.gather(*(program.settled() for program in programs.values()))
    return dict(zip(programs, statuses, strict=True))


async def _lag(client: Client, topic: ScriptedTopic, variables: Mapping[str, str]) -> int | None:
    """Return the group's lag as soon as it is 0, or as it stays."""
    end = time.monotonic() + PATIENCE
    while (lag := await _shown(client, topic, variables)) != 0 and time.monotonic() < end:
        await asyncio.sleep(1)
    return lag


async def _shown(client: Client, topic: ScriptedTopic, variables: Mapping[str, str]) -> int | None:
    if not client.lag:
        return await topic.lag(variables["GROUP"])
    command, environment = client.places(client.lag), os.environ | variables
    printed = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.PIPE)
    output, _ = await printed.communicate()
    return int(output)


def _reads(
    programs: dict[str, Program],
    early: dict[str, int | None],
    late: dict[str, int | None],
    lag: int | None,
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if READ in programs:
        result |= {"delivered": programs[READ].delivered, "lag": lag, "failed": late[READ] is not None}
    if BOUNDED in programs:
        ends = _ends(early[BOUNDED], late[BOUNDED])
        result |= {"bounded": {"ends": ends, "delivered": programs[BOUNDED].delivered}}
    return result


def _ends(early: int | None, late: int | None) -> str:
    if late is None:
        return NEVER
    return FAILED if late else LATER if early is None else AT_ONCE


async def check_publishes(client: Client, mode: str, bootstrap: str, output: Path) -> dict[str, int]:
    """Return by number of partitions how many keys the client put where Java's client does."""
    topics = {f"keys-{uuid4()}": partitions for partitions in PARTITIONS}
    await create(bootstrap, topics)
    variables = {"KAFKA": bootstrap, "TOPICS": ",".join(topics), "KEYS": ",".join(KEYS)}
    async with running(client, PUBLISH, mode, output, variables) as program:
        await program.settled()
    return {
        str(partitions): sum(found.get(key) == {_murmur2(key) % partitions} for key in KEYS)
        for topic, partitions in topics.items()
        for found in [await places(bootstrap, topic, partitions)]
    }


def _murmur2(key: str) -> int:
    return int(murmur2(key.encode())) & 0x7FFFFFFF
