"""`make bench`: throughput, latency and cost of the worker, as ratios within one run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from bench import (
    against,
    commit_intervals,
    embedder,
    footprint,
    machine,
    novelty,
    pacing,
    partitions,
    processor,
    recovery,
    replicas,
    report,
    stream,
    transaction,
    worker_runs,
)
from bench.context import Context
from bench.measure import Budget, Section
from knowledgepulse_worker.embedding.forward import precisions
from knowledgepulse_worker.tools.demo.brokers import Broker
from support.java_kafka import running_broker


@dataclass(frozen=True)
class Part:
    """A section and its time limit in seconds."""

    run: Callable[[Context, Budget], Awaitable[Section]]
    seconds: float
    seconds_short: float
    needs_broker: bool = True


PARTS = {
    "processor": Part(processor.run, 40, 15, needs_broker=False),
    "embedder": Part(embedder.run, 260, 60, needs_broker=False),
    "worker": Part(worker_runs.run, 900, 85),
    "stream": Part(stream.run, 300, 35),
    "commits": Part(commit_intervals.run, 400, 90),
    "transaction": Part(transaction.run, 30, 10),
    "pacing": Part(pacing.run, 30, 10, needs_broker=False),
    "footprint": Part(footprint.run, 120, 40),
    "novelty": Part(novelty.run, 40, 8, needs_broker=False),
    "partitions": Part(partial(partitions.run, None), 240, 60),
    "recovery": Part(recovery.run, 240, 40),
    "replicas": Part(replicas.run, 180, 90, needs_broker=False),
}
SECONDS, SECONDS_SHORT = 400, 60
"""The time limit of a comparison with another tree."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*PARTS, *against.LOADS]))
@click.option("--short", is_flag=True, help="Run for a few minutes: fewer rounds and partitions.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench-results"),
    show_default=True,
    help="Folder for results.json.",
)
@click.option(
    "--against",
    "other",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Compare with the tree in this folder, of which NAMES are loads, by default all.",
)
@click.option(
    "--rounds", type=click.IntRange(0), default=6, help="Rounds of backlogs of a comparison; 0 for none."
)
@click.option("--rate", type=click.FloatRange(0), help="Arrivals per second of a comparison; 0 for none.")
def main(
    names: tuple[str, ...], short: bool, out: Path, other: Path | None, rounds: int, rate: float | None
) -> None:
    """Measure the sections NAMES, by default all."""
    parts = PARTS if other is None else _compared(other.resolve(), rounds, rate)
    if unknown := set(names) - parts.keys():
        raise click.UsageError(f"{', '.join(sorted(unknown))}: expected {', '.join(parts)}")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 150  # a file has no width limit
    chosen = {name: parts[name] for name in parts if name in names or not names}
    started = time.monotonic()

    def say(line: str) -> None:
        console.print(f"{time.monotonic() - started:6.0f} s  {line}", markup=False, style="dim")

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="kp-bench-")))
        broker: Broker | None = None
        if any(part.needs_broker for part in chosen.values()):
            broker = stack.enter_context(running_broker(say))
        header = machine.describe(broker) | {"form": "short" if short else "full"}
        servers = "" if broker is None else broker.bootstrap_servers
        context = Context(short, folder, servers, "bfloat16" in precisions(), say)
        sections: list[Section] = []
        for name, part in chosen.items():
            say(name)
            budget = Budget(part.seconds_short if short else part.seconds)
            section = asyncio.run(part.run(context, budget))
            section.seconds = budget.spent
            sections.append(section)
            report.write(out, header, sections)
    report.show(console, header, sections)
    console.print(f"{out / report.RESULTS} written", style="dim")


def _compared(other: Path, rounds: int, rate: float | None) -> dict[str, Part]:
    loads = {
        name: Part(partial(against.run, name, other, rounds, rate), SECONDS, SECONDS_SHORT)
        for name in against.LOADS
    }
    return loads | {"partitions": Part(partial(partitions.run, other), SECONDS, SECONDS_SHORT)}


if __name__ == "__main__":
    # It logs warnings about new topics; real errors are raised.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    main()
