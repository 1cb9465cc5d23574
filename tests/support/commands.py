"""Commands as a person runs them: in a process of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys


async def kp_worker(*arguments: str, **environment: str) -> tuple[int | None, str, str]:
    """Run a command to its end; returns status, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker.cli", *arguments),
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()
