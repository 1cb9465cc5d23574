"""``kp-worker score``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import click
from rich.progress import DownloadColumn

from worker.commands.files import echo, files_argument, lines_of
from worker.embedding import load_embedder
from worker.errors import RejectedRecord
from worker.offline import make_scorer, score_line
from worker.options import config_option
from worker.progress import errors, progress_bars
from worker.settings import load_settings, override
from worker.terminal import printable


@click.command()
@files_argument
@config_option
@click.option(
    "--embedder",
    type=click.Choice(["none", "hashing", "sentence-transformers"]),
    help="Overrides embedding.backend.",
)
@click.option("--max-tokens", type=int, help="Overrides embedding.max_tokens.")
@click.option("--truncation", type=click.Choice(["standard", "sdk"]), help="Overrides embedding.truncation.")
def score(
    files: tuple[BinaryIO, ...],
    config: Path | None,
    embedder: str | None,
    max_tokens: int | None,
    truncation: str | None,
) -> None:
    """Score FILES, one JSON trace per line, without a broker.

    Prints one JSON object per trace. Traces are scored in order, as in one partition. Reports invalid lines
    on standard error, and then exits with status 1. `-` reads standard input.
    """
    over = {"backend": embedder, "max_tokens": max_tokens, "truncation": truncation}
    settings = load_settings(config)
    settings = override(
        settings, "embedding", {key: value for key, value in over.items() if value is not None}
    )
    scorer = make_scorer(settings, load_embedder(settings.embedding, settings.cache))
    scored = bad = 0
    with progress_bars(DownloadColumn()) as progress:
        for line in lines_of(files, progress):
            try:
                echo(score_line(line.text, scorer, settings.limits.trace_bytes).to_json(), progress)
                scored += 1
            except RejectedRecord as error:
                bad += 1
                message = printable(f"{line.file}:{line.number}: {error.reason}: {error}")
                errors.print(message, markup=False, emoji=False)
    if bad:
        errors.print(f"{bad} of {scored + bad} lines are invalid")
        sys.exit(1)
