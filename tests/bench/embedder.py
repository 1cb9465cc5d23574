"""Section `embedder`: the forward pass alone, sentence-transformers' `encode` and the worker's embedder."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.measure import Budget, Figure, Section, alternate, ratio
from support.streams import tests_environment


class EmbeddingSide:
    """A process of :mod:`bench.embedding_side`, which is idle unless asked to embed.

    Attributes:
        description: the process's own description, available once it is prepared.
        cpu: CPU seconds per text in each measurement.
    """

    def __init__(self, process: Process, log: Path) -> None:
        self.description = ""
        self.cpu: list[float] = []
        self._process = process
        self._log = log

    @classmethod
    async def start(
        cls,
        stack: AsyncExitStack,
        folder: Path,
        *arguments: str,
    ) -> EmbeddingSide:
        """Start a process, which is stopped with the stack."""
        log = folder / f"{'-'.join(arguments)}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bench.embedding_side",
                *arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=errors,
                env=tests_environment(),
            )
        side = cls(process, log)
        stack.push_async_callback(side.stop)
        return side

    async def imported(self) -> None:
        """Wait until the process has imported its modules; several processes can import at once."""
        assert await self._answer() is None

    async def prepare(self) -> None:
        """Load the model and select the fastest variant; the machine should be idle otherwise."""
        self.description = await self._ask("")

    async def rate(self, seconds: float) -> float:
        """Embed for a number of seconds, and return the texts per second."""
        rate, cpu = await self._ask(str(seconds))
        self.cpu.append(cpu)
        return float(rate)

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _ask(self, line: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()
        return await self._answer()

    async def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, f"{self._log.stem} ended:\n{self._log.read_text()[-4000:]}"
        return json.loads(line)


async def run(context: Context, budget: Budget) -> Section:
    """Compare the ways to embed full windows and mixed lengths, each in its own process."""
    section = Section("embedder", "Embedding 256 tokens of real traces, and a mix of 16 to 256")
    precisions = ["float32", *(["bfloat16"] if context.bfloat16 else [])]
    ways = {"encode one by one": ("encode", "1", "full"), "encode, batch_size=32": ("encode", "32", "full")}
    for precision in precisions:
        ways |= {
            f"matrix products, {precision}": ("products", precision, "full"),
            f"forward only, {precision}": ("forward", precision, "full"),
            f"our embedder, {precision}": ("ours", precision, "full"),
            f"forward only, {precision}, mixed": ("forward", precision, "mixed"),
            f"our embedder, {precision}, mixed": ("ours", precision, "mixed"),
        }
    seconds = 1.5 if context.short else 4.0
    async with AsyncExitStack() as stack:
        sides = {
            name: await EmbeddingSide.start(stack, context.folder, *arguments)
            for name, arguments in ways.items()
        }
        for side in sides.values():
            await side.imported()
        for side in sides.values():
            await side.prepare()
        section.notes += [f"{name}: {side.description}" for name, side in sides.items()]
        rates = await alternate(
            {name: lambda side=side: side.rate(seconds) for name, side in sides.items()},
            budget.rounds(context.rounds),
        )
    section.figures += [Figure(name, "texts/s", values) for name, values in rates.items()]
    section.figures += [
        Figure(f"CPU time a text, {name}", "ms", [seconds * 1000 for seconds in side.cpu])
        for name, side in sides.items()
    ]
    for precision in precisions:
        for mine, other, reach in (
            (f"our embedder, {precision}", f"forward only, {precision}", "0.9 at least"),
            (f"our embedder, {precision}, mixed", f"forward only, {precision}, mixed", ""),
            (f"forward only, {precision}", f"matrix products, {precision}", ""),
            (
                f"our embedder, {precision}",
                "encode one by one",
                "4 at least, aim 5" if precision == "float32" else "",
            ),
            (f"our embedder, {precision}", "encode, batch_size=32", ""),
        ):
            section.figures.append(ratio(f"{mine} / {other}", rates[mine], rates[other], reach))
    if not context.bfloat16:
        section.notes.append("bfloat16 is not measured: this CPU has no instructions for it")
    return section
