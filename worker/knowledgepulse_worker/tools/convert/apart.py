"""The conversion of files in a process of its own, for hooks: none holds up the sessions after it."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
from rich.progress import Progress

from knowledgepulse_convert import Options
from knowledgepulse_worker.child import ChildFunction
from knowledgepulse_worker.child_process import CallError, ChildProcess
from knowledgepulse_worker.errors import WorkerError
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport, converted
from knowledgepulse_worker.tools.terminal.console import tell

CONVERSION_LIMIT = 60.0
"""Seconds that the conversion of a file may take."""

MEMORY_LIMIT = 4 * 2**30
"""Bytes of memory that the process may take; a document takes up to 30 times its size."""

_FACTORY = f"{__name__}:converting"
_FAILURES = {
    "timeout": f"it takes longer than {CONVERSION_LIMIT:g} s; `kp-worker publish --from auto` takes its time",
    "crashed": "its conversion ended the process",
}


class _Task(msgspec.Struct):
    format_name: str
    options: Options
    memory: int | None = None


class ConvertedFile(msgspec.Struct):
    """A file's traces in JSON, the number of runs that could not be converted, and why it cannot be read."""

    traces: list[bytes] = []
    failed: int = 0
    problem: str | None = None


def converting(argument: bytes) -> ChildFunction:
    """Return a function of the child process, from the name of a file to its traces."""
    task = msgspec.msgpack.decode(argument, type=_Task)
    if task.memory is not None:
        with suppress(ValueError, OSError):  # the system may know no such limit, or have a lower one
            resource.setrlimit(resource.RLIMIT_DATA, (task.memory, task.memory))

    def convert_file(name: bytes) -> bytes:
        report, result, progress = ConversionReport(), ConvertedFile(), Progress(disable=True)
        try:
            for trace in converted([os.fsdecode(name)], task.format_name, report, progress, task.options):
                result.traces.append(trace.text)
        except WorkerError as error:
            result.problem = str(error)
        except MemoryError:
            result.traces.clear()
            limit = f"{(task.memory or 0) / 2**30:g} GiB"
            result.problem = f"{os.fsdecode(name)}: needs more than {limit} of memory"
        result.failed = report.failed
        return msgspec.msgpack.encode(result)

    return convert_file


def converted_apart(
    files: Iterable[str], format_name: str, options: Options, take: Callable[[str, ConvertedFile], None]
) -> None:
    """Convert files, and pass each to a function with its result; failures have been printed.

    Raises:
        SettingsError: no process can be started.
    """
    task = msgspec.msgpack.encode(_Task(format_name, options, MEMORY_LIMIT))
    asyncio.run(_convert(files, task, take))


async def _convert(files: Iterable[str], task: bytes, take: Callable[[str, ConvertedFile], None]) -> None:
    async with ChildProcess(_FACTORY, task, CONVERSION_LIMIT, "conversion") as child:
        for name in files:
            try:
                answer = await child.call(os.fsencode(name))
            except CallError as error:
                failure = _FAILURES.get(error.reason, str(error))
                tell(f"{name}: not converted: {failure}")
                take(name, ConvertedFile(failed=1))
            else:
                take(name, msgspec.msgpack.decode(answer, type=ConvertedFile))
