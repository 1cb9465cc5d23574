"""The end of a worker's process."""

from __future__ import annotations

import subprocess
import sys

HANGS = """
import asyncio, sys
from types import SimpleNamespace
from worker.settings import Settings
from worker.stream import run

run.STOP_LIMIT, run.END_LIMIT = 0.1, 0.5

async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("cancelled", flush=True)

async def done():
    pass

async def main():
    forever = asyncio.Event()
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(RuntimeError("a lane cannot go on"))
    faust = SimpleNamespace(start=done, wait_until_stopped=forever.wait, stop=stubborn, crashed=False)
    app = SimpleNamespace(settings=Settings(), faust=faust)
    await run._serve(app, asyncio.Event(), failed, asyncio.create_task(forever.wait()), [])

run._run(main())
"""


def test_after_a_failure_the_process_ends_whatever_hangs():
    """A client's task that cannot be cancelled once kept a process for half a minute."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS], check=False, capture_output=True, text=True, timeout=60
    )

    assert "cancelled" in done.stdout
    assert done.returncode == 1
    assert "Timeout" in done.stderr  # with the traceback of what hangs
