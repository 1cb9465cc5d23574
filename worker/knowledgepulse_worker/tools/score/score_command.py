"""``kp-worker score``, without what scores: `--help` is quick."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from knowledgepulse_worker.terminal.lazy_command import imported
from knowledgepulse_worker.tools.convert.conversion_options import FORMAT, conversion_options
from knowledgepulse_worker.tools.score.scoring_options import scoring_options
from knowledgepulse_worker.tools.terminal.arguments import files_argument

if TYPE_CHECKING:
    from knowledgepulse_worker.tools.score.scoring import Scoring


@click.command()
@files_argument
@click.option("--from", "format_name", type=FORMAT, help="Convert the files from this format first.")
@conversion_options
@scoring_options
@click.option("--dry-run", is_flag=True, help="Only validate the traces, without a model.")
def score(
    files: tuple[str, ...],
    format_name: str | None,
    conversion: dict[str, Any],
    dry_run: bool,
    given: Scoring,
) -> None:
    """Score FILES, one JSON trace per line, without a broker.

    On a terminal, prints a table of the best traces and a report: how many pass by the policy and how many
    would by a share of a fifth, and why the best one is the best. Elsewhere, prints one JSON object per
    trace, which includes its shortened objective, steps and result. With `--from`, the files are first
    converted, as `kp-worker convert` does, and so are all files if one is a folder.

    Traces are scored in the order of the files and lines, as in one partition or in `--partitions`. Invalid
    lines are reported on standard error, and the exit status is then 1. `-` reads standard input.
    """
    score_files = imported("knowledgepulse_worker.tools.score.score_files:score_files")
    sys.exit(score_files(files, format_name, conversion, given, validate_only=dry_run))
