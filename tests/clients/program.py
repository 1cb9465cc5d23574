"""A client's program, and the records that it printed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from clients.client import SET, Client

START_LIMIT = 180.0
"""Seconds until a program must print a record, or end."""

PATIENCE = 15.0
"""Seconds without a record after which a program is taken to wait."""

_STEP = 0.2


class Program:
    """A running program, which prints a line of JSON for each record: ``{"record": "committed"}``."""

    def __init__(self, process: asyncio.subprocess.Process, output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def delivered(self) -> dict[str, int]:
        """The numbers of records, by what they are."""
        lines = self._output.read_text(errors="replace").splitlines()
        return dict(Counter(json.loads(line)["record"] for line in lines if line.startswith('{"record": ')))

    async def settled(self) -> int | None:
        """Return the status with which it ends; None if it runs on and prints no more."""
        known, since = self.delivered, time.monotonic()
        while self._process.returncode is None:
            if (now := self.delivered) != known:
                known, since = now, time.monotonic()
            elif time.monotonic() - since > (PATIENCE if known else START_LIMIT):
                return None
            await asyncio.sleep(_STEP)
        return self._process.returncode


@asynccontextmanager
async def running(
    client: Client, task: str, mode: str, output: Path, variables: Mapping[str, str]
) -> AsyncIterator[Program]:
    """Start a program, and end it and its children afterwards."""
    printed = output / f"{task}.out"
    with printed.open("wb") as out, (output / f"{task}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *client.places(client.command),
            env=os.environ | {"TASK": task, "SETTING": "yes" if mode == SET else "", **variables},
            cwd=output,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Program(process, printed)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
