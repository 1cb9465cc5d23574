"""``kp-worker score``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.progress import DownloadColumn

from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.errors import RejectedRecord
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.settings import load_settings, override
from knowledgepulse_worker.terminal.files import echo, files_argument, lines_of, print_rejected
from knowledgepulse_worker.terminal.options import config_option
from knowledgepulse_worker.terminal.progress import errors, progress_bars
from knowledgepulse_worker.tools.score.offline import embedder_name, make_scorer, score_line


@click.command()
@files_argument
@config_option
@click.option(
    "--embedder",
    "backend",
    type=click.Choice(["none", "lexical", "sentence-transformers"]),
    help="Overrides embedding.backend.",
)
@click.option("--max-tokens", type=int, help="Overrides embedding.max_tokens.")
@click.option("--truncation", type=click.Choice(["standard", "sdk"]), help="Overrides embedding.truncation.")
@click.option("--text", type=click.Choice(["sdk", "agent", "parts"]), help="Overrides embedding.text.")
@click.option("--dry-run", is_flag=True, help="Only validate the lines, without a model.")
def score(
    files: tuple[str, ...],
    config: Path | None,
    backend: str | None,
    max_tokens: int | None,
    truncation: str | None,
    text: str | None,
    dry_run: bool,
) -> None:
    """Score FILES, one JSON trace per line, without a broker.

    Prints one JSON object per trace. Traces are scored in order, as in one partition, across all files.
    Reports invalid lines on standard error, and then exits with status 1. `-` reads standard input.
    """
    over = {"backend": backend, "max_tokens": max_tokens, "truncation": truncation, "text": text}
    settings = load_settings(config)
    settings = override(
        settings, "embedding", {key: value for key, value in over.items() if value is not None}
    )
    embedder = None if dry_run else load_embedder(settings.embedding, settings.cache)
    scorer, name = make_scorer(settings, embedder), embedder_name(settings.embedding)
    good = bad = 0
    with progress_bars(DownloadColumn()) as progress:
        for line in lines_of(files, progress):
            try:
                if dry_run:
                    decode_trace(line.text.strip(), settings.limits.trace_bytes)
                else:
                    echo(score_line(line.text, scorer, settings.limits.trace_bytes).to_json(name), progress)
                good += 1
            except RejectedRecord as error:
                bad += 1
                print_rejected(line, error)
    if dry_run:
        embedding, policy = settings.embedding.backend, settings.policy.digest
        errors.print(f"{good} traces would be scored: embedding.backend {embedding}, policy {policy}")
    if bad:
        errors.print(f"{bad} of {good + bad} lines are invalid")
        sys.exit(1)
