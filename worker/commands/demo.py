"""``kp-worker demo``."""

from __future__ import annotations

import sys
from contextlib import suppress

import click
from rich.console import Console


@click.command()
@click.option("--stay/--no-stay", default=None, help="Stay up until Ctrl-C.  [default: on a terminal]")
def demo(stay: bool | None) -> None:
    """Show the worker on 154 real traces and a real broker.

    Finds a broker in this order: KAFKA_BOOTSTRAP_SERVERS, Docker, Java with Maven, the embedded noida-db. It
    makes topics of its own and leaves nothing behind.
    """
    from worker.demo.show import show  # noqa: PLC0415 - the other commands need not wait for it

    with suppress(KeyboardInterrupt):
        show(Console(), stay=sys.stdout.isatty() if stay is None else stay)
