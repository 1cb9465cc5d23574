"""``kp-worker demo``."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import get_args

import click
from rich.console import Console

from knowledgepulse_worker.extras import require_worker
from knowledgepulse_worker.settings import EmbeddingSettings


@click.command()
@click.option(
    "--stay/--no-stay",
    default=None,
    help="Keep the worker running until Ctrl-C.  [default: if on a terminal]",
)
@click.option(
    "--backend",
    type=click.Choice(get_args(EmbeddingSettings.model_fields["backend"].annotation)),
    help="Show the results of this embedding.backend instead of the settings'.",
)
def demo(stay: bool | None, backend: str | None) -> None:
    """Demonstrate the worker on 154 real traces and a real broker.

    Uses the first available broker of: KAFKA_BOOTSTRAP_SERVERS, Docker, the embedded noida-db. Uses
    temporary topics and cleans up afterwards.
    """
    require_worker("demo")
    from knowledgepulse_worker.tools.demo.run_demo import show  # noqa: PLC0415 - `--help` need not wait for it

    with suppress(KeyboardInterrupt):
        show(Console(highlight=False), backend, stay=sys.stdout.isatty() if stay is None else stay)
