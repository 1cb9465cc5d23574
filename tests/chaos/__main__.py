"""`make chaos`: run the full rows and write their results into results.md."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from chaos import results
from chaos.assembly import ASSEMBLE, assemble
from chaos.brokers import running_brokers
from chaos.clock import Clock
from chaos.play import judge, play
from chaos.results import Outcome
from chaos.rows import ROWS

OTHERS = {
    "assemble": (ASSEMBLE, assemble),
}
"""What also needs brokers, but is no row."""

FAULTS = {
    **{name: row.fault for name, row in ROWS.items()},
    **{name: fault for name, (fault, _) in OTHERS.items()},
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*FAULTS]))
@click.option("--short", is_flag=True, help="Run the short forms, and only print their results.")
@click.option(
    "--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder to keep the workers' logs in."
)
@click.option(
    "--release",
    envvar="RELEASE",
    metavar="REVISION",
    help="Run the workers of that git revision, and only print the results unless the row upgrades them.",
)
def main(names: tuple[str, ...], short: bool, logs: Path | None, release: str | None) -> None:
    """Run the rows NAMES, by default all, and write their results into results.md."""
    console = Console(highlight=False)
    failed = []
    for name in names or FAULTS:
        console.rule(f"[bold]{name}[/]: {FAULTS[name]}")
        started = time.monotonic()

        def say(line: str, started: float = started) -> None:
            console.print(f"  {time.monotonic() - started:6.0f} s  {line}", markup=False)

        try:
            with _folder(logs, name) as folder:
                outcome = _run(name, short, folder, say, release)
            console.print(outcome)
            if not short and (release is None or ROWS[name].release):
                results.store(name, outcome)
                results.write_table(FAULTS)
            if name in ROWS:
                judge(ROWS[name], outcome)
            assert name in ROWS or not outcome.wrong, outcome
        except Exception:  # continue with the remaining rows
            console.print_exception(max_frames=5)
            failed.append(name)
    if failed:
        console.print(f"[red]failed:[/] {', '.join(failed)}")
        sys.exit(1)


def _run(name: str, short: bool, folder: Path, say: Callable[[str], None], release: str | None) -> Outcome:
    if name in OTHERS:
        _, measure = OTHERS[name]
        with running_brokers(1) as brokers:
            return asyncio.run(measure(brokers.direct, folder, short, say))
    row = replace(ROWS[name], release=release or ROWS[name].release)
    clock = Clock(folder / "brokers.clock") if row.clocks else None
    own_disks = row.own_disks and os.geteuid() == 0
    with running_brokers(row.nodes, row.kafka, clock, own_disks=own_disks, tls=row.tls) as brokers:
        return asyncio.run(play(row, row.short if short else row.full, brokers, folder, say))


@contextmanager
def _folder(logs: Path | None, name: str) -> Iterator[Path]:
    """Yield a row's folder, which is kept if logs are wanted."""
    if logs is None:
        with TemporaryDirectory(prefix="kp-chaos-") as folder:
            yield Path(folder)
        return
    folder = logs / f"{name}-{time.strftime('%H%M%S')}"
    folder.mkdir(parents=True)
    yield folder


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # the tests' clients are affected, too
    main()
