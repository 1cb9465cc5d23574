"""``kp-worker score``, without what scores: `--help` is quick."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knowledgepulse_worker.terminal.lazy_command import imported
from knowledgepulse_worker.tools.convert.conversion_options import (
    FORMAT,
    Selection,
    conversion_options,
    selection_options,
)
from knowledgepulse_worker.tools.score.scoring_options import scoring_options
from knowledgepulse_worker.tools.terminal.arguments import InputFile, NewFile

if TYPE_CHECKING:
    from knowledgepulse_worker.tools.score.scoring import Scoring

_SOURCES = "knowledgepulse_worker.tools.score.sources"


@click.command()
@click.argument("files", nargs=-1, type=InputFile(exists=True, dir_okay=True, allow_dash=True))
@click.option("--from", "format_name", type=FORMAT, help="Convert the files from this format first.")
@conversion_options
@selection_options("of a database, or of all that are found")
@click.option(
    "--agent", "agents", metavar="NAME", multiple=True, help="Find only this agent's sessions. Repeatable."
)
@click.option("--all", "everything", is_flag=True, help="Score all sessions that are found.")
@scoring_options
@click.option(
    "--keep", type=NewFile(), metavar="FILE", help="Write the traces that pass to a file, the best first."
)
@click.option(
    "--html",
    type=NewFile(),
    metavar="FILE",
    help="Write a page to look at: one file, which asks for nothing.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page of --html in the browser.")
@click.option("--no-content", is_flag=True, help="Write the page without texts, files, agents and tools.")
@click.option("--dry-run", is_flag=True, help="Only validate the traces, without a model.")
def score(
    files: tuple[str, ...],
    format_name: str | None,
    conversion: dict[str, Any],
    wanted: Selection,
    agents: tuple[str, ...],
    everything: bool,
    keep: Path | None,
    html: Path | None,
    opens: bool,
    no_content: bool,
    dry_run: bool,
    given: Scoring,
) -> None:
    """Score FILES, one JSON trace per line, or the sessions that agents keep here, without a broker.

    Without FILES, on a terminal or with an option that chooses sessions, the command looks where agents keep
    their sessions, says what it found, and scores the newest 500, without a model unless the settings name
    one. Nothing leaves the machine.

    On a terminal, prints a table of the best traces and a report: how many pass by the policy and how many
    would by a share of a fifth, and why the best one is the best. Elsewhere, prints one JSON object per
    trace, which includes its shortened objective, steps and result. With `--from`, the files are first
    converted, as `kp-worker convert` does, and so are all files if one is a folder. `--keep` writes what
    passes by the policy, or by a share of a fifth if none is chosen. `--html` writes all scores with the
    steps of the best to a page.

    Traces are scored in the order of the files and lines, as in one partition or in `--partitions`. Invalid
    lines are reported on standard error, and the exit status is then 1. `-` reads standard input.
    """
    if html is None and (opens or no_content):
        raise click.UsageError("--open and --no-content need --html FILE")
    if files and (agents or everything):
        raise click.UsageError("--agent and --all choose among the sessions that are found without FILES")
    if not files and wanted.ids:
        raise click.UsageError("--session chooses in a database: name it as one of FILES")
    chooses = agents or everything or wanted != Selection()
    if not (files or chooses or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise click.UsageError(
            "Missing argument 'FILES...'; `-` reads standard input, and a folder is one, too"
        )
    if files:
        source = imported(f"{_SOURCES}:in_files")(files, format_name, conversion, wanted)
    else:
        source = imported(f"{_SOURCES}:found_here")(agents, wanted, conversion, all_=everything)
        given = replace(given, usual_backend="lexical")
    score_traces = imported("knowledgepulse_worker.tools.score.score_traces:score_traces")
    status = score_traces(source, given, keep, html, content=not no_content, validate_only=dry_run)
    if html is not None and opens and html.is_file():
        click.launch(str(html))
    sys.exit(status)
