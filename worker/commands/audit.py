"""``kp-worker audit``."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from worker.audit import audit as run_audit
from worker.audit.show import show
from worker.embedding import load_embedder
from worker.options import config_option
from worker.progress import counting
from worker.settings import load_settings


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
def audit(config: Path | None, as_json: bool) -> None:
    """Check that nothing is missing and nothing differs.

    Reads raw, the outputs and the ledger's changelog up to where they end now; workers may run meanwhile.
    Every committed record must have an output, equal to the record but for the score, and to its repeats;
    score, novelty and route are computed again. Give it the worker's settings. The exit status is 1 when
    anything is missing or differs.
    """
    settings = load_settings(config)
    embedder = partial(load_embedder, settings.embedding, settings.cache)
    with counting() as progress:
        report = asyncio.run(run_audit(settings, embedder=embedder, progress=progress))
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        show(report, Console(highlight=False, soft_wrap=True))
    sys.exit(0 if report.ok else 1)
