"""``kp-worker score-runs``."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from inspect import cleandoc
from pathlib import Path

import click

from knowledgepulse_worker.tools.backends.all_backends import BACKENDS, connected
from knowledgepulse_worker.tools.backends.backend_options import KEY_VARIABLES, backend_options, page_option
from knowledgepulse_worker.tools.backends.score_runs import score_runs as score_all
from knowledgepulse_worker.tools.backends.score_runs import write_scores
from knowledgepulse_worker.tools.score.scoring import Scoring
from knowledgepulse_worker.tools.score.scoring_options import scoring_options
from knowledgepulse_worker.tools.terminal.arguments import Moment


@click.command("score-runs")
@click.argument("backend", type=click.Choice([*BACKENDS]))
@click.argument("url")
@backend_options
@page_option
@click.option("--since", type=Moment(), help="Score only runs that started at this time or later.")
@click.option("--write-back", is_flag=True, help="Write the scores into the backend.")
@scoring_options
def score_runs(
    backend: str,
    url: str,
    project: str,
    key_file: Path | None,
    max_page: int,
    since: datetime | None,
    write_back: bool,
    given: Scoring,
) -> None:
    """Score the runs of BACKEND at URL, without a broker.

    Prints what `kp-worker score` prints of files. Runs that have ended are scored, in the order of their
    starts. `--write-back` writes each score into the backend, in the place of an earlier one; the exit status
    is 1 if the backend refuses one.
    """

    async def run() -> int:
        connection = connected(backend, url, project, key_file, max_bytes=max_page * 2**20)
        async with connection as source:
            runs = await score_all(source, since, given.scorer())
            if given.prints_lines:
                for run in runs:
                    click.echo(given.line_of(run.scored, run.value).encode())
            else:
                given.print_table([run.record(source) for run in runs], "run")
            return 1 if write_back and await write_scores(source, runs, given.settings.policy.digest) else 0

    sys.exit(asyncio.run(run()))


score_runs.help = f"{cleandoc(score_runs.help or '')}\n\nThe backend's key is read from {KEY_VARIABLES}."
