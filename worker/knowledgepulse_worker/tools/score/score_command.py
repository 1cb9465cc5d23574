"""``kp-worker score``."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import get_args

import click
from rich.progress import DownloadColumn

from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.errors import InputError, InvalidRecordError
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.settings import Settings, load_settings, override
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.tools.backends.all_backends import BACKENDS, connected
from knowledgepulse_worker.tools.backends.backend import Backend
from knowledgepulse_worker.tools.backends.backend_options import BACKEND_NAMES, backend_options, page_option
from knowledgepulse_worker.tools.common.record_key import KeyBy
from knowledgepulse_worker.tools.score.offline import Partitions, embedder_name, make_scorer
from knowledgepulse_worker.tools.score.score_backend import report_of, score_runs, write_scores
from knowledgepulse_worker.tools.terminal.arguments import Moment
from knowledgepulse_worker.tools.terminal.console import errors, progress_bars
from knowledgepulse_worker.tools.terminal.files import (
    echo,
    lines_of,
    print_rejected,
    refuse_other_files,
)
from knowledgepulse_worker.tools.terminal.options import embedder_option


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@config_option
@click.option(
    "--from",
    "source",
    type=(click.Choice([*BACKENDS]), str),
    metavar="BACKEND URL",
    help=f"Score the runs of this backend ({BACKEND_NAMES}) instead of files.",
)
@backend_options
@page_option
@click.option(
    "--since", type=Moment(), help="With --from: score only runs that started at this time or later."
)
@click.option("--write-back", is_flag=True, help="With --from: write the scores into the backend.")
@embedder_option("Override embedding.backend.")
@click.option("--max-tokens", type=int, help="Override embedding.max_tokens.")
@click.option("--truncation", type=click.Choice(["standard", "sdk"]), help="Override embedding.truncation.")
@click.option("--text", type=click.Choice(["sdk", "agent", "parts"]), help="Override embedding.text.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    default=1,
    help="Score as in a topic with this number of partitions, where a trace is compared only with its own.",
)
@click.option(
    "--key",
    type=click.Choice(get_args(KeyBy)),
    default="id",
    help="Field that determines the partition, as in `kp-worker publish`.",
)
@click.option("--traces", is_flag=True, help="Print each trace with its score, for `kp-worker export`.")
@click.option("--dry-run", is_flag=True, help="Only validate the lines, without a model.")
def score(
    files: tuple[str, ...],
    config: Path | None,
    source: tuple[str, str] | None,
    project: str,
    key_file: Path | None,
    max_page: int,
    since: datetime | None,
    write_back: bool,
    embedder: str | None,
    max_tokens: int | None,
    truncation: str | None,
    text: str | None,
    partitions: int,
    key: KeyBy,
    traces: bool,
    dry_run: bool,
) -> None:
    """Score FILES, one JSON trace per line, or the runs of a backend, without a broker.

    Prints one JSON object per trace, which includes its shortened objective, steps and result. Traces are
    scored in the order of the files and lines, as in one partition or in `--partitions`. Invalid lines are
    reported on standard error, and the exit status is then 1. `-` reads standard input.

    With `--from`, prints a table of the runs, the best first, and a report. With `--traces` in addition, the
    lines are printed instead of the table. `--write-back` writes each score into the backend, in the place of
    an earlier one. `kp-worker pull` says where the backend's key is read from.
    """
    _check(files, source, write_back=write_back, since=since, dry_run=dry_run)
    refuse_other_files(files)
    over = {"backend": embedder, "max_tokens": max_tokens, "truncation": truncation, "text": text}
    settings = load_settings(config)
    settings = override(
        settings, "embedding", {name: value for name, value in over.items() if value is not None}
    )
    loaded = None if dry_run else load_embedder(settings.embedding, settings.cache)
    topic = Partitions(partitions, key, partial(make_scorer, settings, loaded))
    name = embedder_name(settings.embedding)
    if source is not None:
        scoring = _score_backend(
            connected(*source, project, key_file, max_bytes=max_page * 2**20),
            since,
            settings,
            topic,
            write_back=write_back,
            traces=traces,
        )
        sys.exit(asyncio.run(scoring))
    good = bad = 0
    with progress_bars(DownloadColumn()) as progress:
        for line in lines_of(files, progress):
            try:
                if dry_run:
                    decode_trace(line.text.strip(), settings.limits.trace_bytes)
                else:
                    scored = topic.score(line.text, settings.limits.trace_bytes)
                    policy = settings.policy.digest if traces else None
                    echo(scored.to_json(name, policy, line.text.strip()), progress)
                good += 1
            except InvalidRecordError as error:
                bad += 1
                print_rejected(line, error)
    if not good + bad:
        raise InputError(
            f"{printable(', '.join(files))}: no trace to score; one JSON trace per line is expected"
        )
    if dry_run:
        embedding, policy = settings.embedding.backend, settings.policy.digest
        errors.print(
            f"{counted(good, 'trace')} would be scored: embedding.backend {embedding}, policy {policy}"
        )
    if bad:
        hint = "" if good else "; `kp-worker convert` makes traces from sessions, spans and chats"
        errors.print(f"{bad:,} of {good + bad:,} lines are invalid{hint}")
        sys.exit(1)


def _check(
    files: tuple[str, ...],
    source: tuple[str, str] | None,
    *,
    write_back: bool,
    since: datetime | None,
    dry_run: bool,
) -> None:
    """Refuse options that make no sense together."""
    if (source is None) == (not files):
        raise click.UsageError("give FILES, or a backend with --from")
    if source is None and (write_back or since is not None):
        raise click.UsageError("--write-back and --since need --from: files have no runs")
    if source is not None and dry_run:
        raise click.UsageError("--dry-run goes not with --from")


async def _score_backend(
    connection: AbstractAsyncContextManager[Backend],
    since: datetime | None,
    settings: Settings,
    topic: Partitions,
    *,
    write_back: bool,
    traces: bool,
) -> int:
    """Score the runs of a backend, and return the exit status: 1 if it refused a score."""
    name, digest = embedder_name(settings.embedding), settings.policy.digest
    async with connection as backend:
        runs = await score_runs(backend, since, partial(topic.score, max_bytes=settings.limits.trace_bytes))
        if traces:
            for run in runs:
                click.echo(run.scored.to_json(name, digest, run.value).encode())
        else:
            for line in report_of(runs, backend):
                click.echo(line)
        return 1 if write_back and await write_scores(backend, runs, digest) else 0
