"""Datasets: sessions are published, scored and exported, portion by portion, with and without kills.

This is not a row, because two chains read the same raw topic, each with its own worker, outputs and dataset.
In one of the chains, the worker is killed while it scores each portion, and the export is killed while it
writes it. All Parquet and JSONL files must be identical in both chains. Manifest and card may differ in
counts of repeated outputs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from chaos.results import Outcome
from knowledgepulse_curator.export.chat_messages import Conversation, turns_of
from knowledgepulse_worker.settings import render
from support import metrics_page as page
from support.commands import kp_worker
from support.streams import Stream, own_settings
from support.traces import real_traces

DATASET = "kill -9 of worker and export while sessions are published, scored and exported"
PORTIONS, PORTIONS_SHORT = 10, 2
SESSIONS = 40
PARTITIONS = 2


def sessions() -> Iterator[str]:
    """Yield real runs as sessions of Claude Code; the tasks are repeated."""
    for number, trace in enumerate(itertools.cycle(real_traces())):
        said = list[tuple[str, dict[str, Any]]]()
        for turn in turns_of(msgspec.json.decode(trace, type=Conversation)):
            said += [(turn.role, {"type": "text", "text": turn.text})] if turn.text else []
            for call in turn.calls:
                name = call["tool_call_id"]
                use = {
                    "type": "tool_use",
                    "id": name,
                    "name": call["function_name"],
                    "input": call["arguments"],
                }
                result = {"type": "tool_result", "tool_use_id": name, "content": turn.results.get(name, "")}
                said += [("assistant", use), ("user", result)]
        yield "\n".join(
            json.dumps({"type": role, "sessionId": str(number), "message": {"role": role, "content": [part]}})
            for role, part in said
        )


class Chain:
    """A worker that can be killed, and the dataset of the traces that it contributes."""

    def __init__(self, stream: Stream, stack: AsyncExitStack) -> None:
        self.stream = stream
        self.folder = stream.folder / "dataset"
        self._stack = stack
        config = stream.folder / "kp.toml"
        config.write_text(render(stream.settings))
        self._config = ("--config", str(config))
        self._export = ("export", str(self.folder), "--not-cleaned", "--also", "messages", *self._config)

    async def start(self) -> None:
        self._worker = await self._stack.enter_async_context(self.stream.worker())
        await self._worker.owns(PARTITIONS)

    async def publish(self, texts: Iterator[str]) -> None:
        files = [self.stream.folder / f"{number}.jsonl" for number in range(SESSIONS)]
        for file in files:
            file.write_text(next(texts))
        leaves = ("--visibility", "network", "--privacy-level", "aggregated", *self._config)
        status, _, errors = await kp_worker("publish", "--from", "auto", *map(str, files), *leaves)
        assert status == 0, errors

    async def kill_worker(self) -> None:
        """Kill the worker once it has published another record."""
        await self._worker.published(1 + round(page.value(await self._worker.metrics(), "kp_traces_total")))
        await self._worker.kill()

    async def committed(self) -> int:
        return sum((await self.stream.committed()).values())

    async def settled(self, sent: int) -> None:
        async with asyncio.timeout(120):
            while await self.committed() < sent:
                await asyncio.sleep(0.2)

    async def kill_export(self) -> bool:
        """Kill an export when it has created some files; return whether it was still running."""
        command = (sys.executable, "-m", "knowledgepulse_worker.cli.entry", *self._export)
        before, seen, few = self._paths(), set[Path](), random.randint(1, 8)
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        while process.returncode is None and len(seen) < few:
            seen |= self._paths() - before
            await asyncio.sleep(0.0005)
        if alive := process.returncode is None:
            process.kill()
        await process.wait()
        return alive

    async def export(self, *options: str) -> None:
        status, output, errors = await kp_worker(*self._export, *options)
        assert (status, output) == (0, ""), errors or output

    def _paths(self) -> set[Path]:
        return {Path(root, name) for root, _, names in os.walk(self.folder) for name in names}

    def files(self) -> dict[str, bytes]:
        found = (path for path in self._paths() if path.suffix in {".parquet", ".jsonl"})
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


async def export(bootstrap_servers: str, folder: Path, short: bool, say: Callable[[str], None]) -> Outcome:
    """Publish portion after portion; during each, kill the worker and the export of one of the chains."""
    source, portions = sessions(), PORTIONS_SHORT if short else PORTIONS
    usual = {"embedding": {"backend": "lexical"}, "policy": {"threshold": 0.0}}
    quick = {"kafka": {"session_timeout": 1.0}}
    stream = Stream(own_settings(bootstrap_servers, "dataset", usual, quick), folder)
    topics = stream.settings.topics.model_dump(include={"contribute", "rejected", "dead_letter"})
    group = {"group": f"{stream.settings.kafka.group}-calm"}
    apart = stream.configured(topics={kind: f"{name}-calm" for kind, name in topics.items()}, kafka=group)
    (folder / "calm").mkdir()
    hits, killed = list[int](), 0
    async with AsyncExitStack() as stack:
        chains = chain, calm = Chain(stream, stack), Chain(Stream(apart, folder / "calm"), stack)
        for started in chains:
            await started.stream.create_topics(PARTITIONS)
            await started.start()
        for sent in range(SESSIONS, (1 + portions) * SESSIONS, SESSIONS):
            publishing = asyncio.create_task(chain.publish(source))
            await chain.kill_worker()
            hits.append(sent - await chain.committed())
            await asyncio.gather(publishing, chain.start())
            await asyncio.gather(*(chain.settled(sent) for chain in chains))
            killed += await chain.kill_export()
            await asyncio.gather(*(chain.export() for chain in chains))
            say(f"{sent} sessions: {hits[-1]} not committed when killed; {killed} exports killed")
        await asyncio.gather(*(chain.export("--check") for chain in chains))
    from datasets import load_dataset  # takes over a second

    ours, theirs = chain.files(), calm.files()
    wrong = sorted(path for path in {*ours, *theirs} if ours.get(path) != theirs.get(path))
    differing, tables = len(wrong), load_dataset(str(chain.folder), cache_dir=str(folder / "cache"))
    rows = [row for table in tables.values() for row in table["source"]]
    manifest = json.loads((chain.folder / "manifest.json").read_bytes())
    left_out = sum(export["dropped"].get("both_sides", 0) for export in manifest["exports"])
    outputs, missing = len(await stream.read(topics["contribute"])), sent - left_out - len({*rows})
    wrong += ["rows are missing or repeated"] if len(rows) + left_out != sent or missing else []
    notes = {"exports killed": killed, "files compared": len(ours), "left out between two splits": left_out}
    return Outcome(
        rounds=len(hits) + killed, records=sent, outputs=outputs, repeats=outputs - sent, missing=missing,
        differing=differing, audited=0, wrong=wrong[:5], hits=hits, notes=notes,
    )  # fmt: skip
