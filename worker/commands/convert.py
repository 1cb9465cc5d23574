"""``kp-worker convert``, and what ``publish`` shares with it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.progress import DownloadColumn, Progress

from schemas.convert import AUTO, SOURCES, Conversion, ConversionError, Losses, Options
from worker.commands.files import echo, files_argument, opened
from worker.convert.files import convert_lines, read_domains, read_labels
from worker.options import Function
from worker.progress import errors, progress_bars


def conversion_options(function: Function) -> Function:
    """Add what a conversion can be told."""
    options = (
        click.option(
            "--domain-map",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="TOML file: the task domain of each agent, service or project.",
        ),
        click.option(
            "--labels",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="JSON lines with the id of a run or trace, its success and its confidence.",
        ),
        click.option(
            "--visibility",
            type=click.Choice(["private", "org", "network"]),
            default="private",
            show_default=True,
            help="Who may see the traces.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@files_argument
@click.option(
    "--from",
    "source",
    type=click.Choice([AUTO, *SOURCES]),
    default=AUTO,
    show_default=True,
    help="The format of the files.",
)
@conversion_options
def convert(files: tuple[BinaryIO, ...], source: str, **options: Any) -> None:
    """Convert FILES of other formats to traces, one JSON trace a line.

    A file is one JSON document, or one on each line; with `--from otlp`, also protobuf. What is no run of an
    agent is reported on standard error, and the exit status is then 1; what had no place in a trace is listed
    there too. `-` reads standard input.
    """
    report = ConversionReport()
    with progress_bars(DownloadColumn()) as progress:
        for trace in converted(files, source, report, progress, **options):
            echo(trace.decode(), progress)
    report.show()
    sys.exit(1 if report.refused else 0)


@dataclass
class ConversionReport:
    """What a conversion came to."""

    traces: int = 0
    labelled: int = 0
    refused: int = 0
    losses: Losses = field(default_factory=Losses)

    def count(self, conversion: Conversion) -> None:
        """Take a trace into account."""
        metadata = conversion.trace.metadata.model_extra or {}
        self.traces += 1
        self.labelled += "label" in {metadata.get("outcome_source"), metadata.get("confidence_source")}
        self.losses.merge(conversion.losses)

    def show(self) -> None:
        """Print it on standard error, the largest losses first."""
        errors.print(f"{self.traces} traces, {self.labelled} with a label; {self.refused} not converted")
        if self.losses:
            errors.print("without a place in the traces:")
        for path, loss in sorted(self.losses.items(), key=lambda one: (-one[1].characters, one[0])):
            told = f"  {path}: {loss.values} values, {loss.characters} characters"
            errors.print(told, markup=False)


def converted(
    files: Iterable[BinaryIO],
    source: str,
    report: ConversionReport,
    progress: Progress,
    *,
    domain_map: Path | None,
    labels: Path | None,
    visibility: Any,
) -> Iterator[bytes]:
    """Yield the files' traces as JSON, and report the rest."""
    options = Options(
        domains={} if domain_map is None else read_domains(domain_map),
        labels={} if labels is None else read_labels(labels),
        visibility=visibility,
    )
    for name, lines in opened(files, progress):
        for place, outcome in convert_lines(name, lines, source, options):
            if isinstance(outcome, ConversionError):
                report.refused += 1
                errors.print(f"{place}: not converted: {outcome}", markup=False)
                continue
            report.count(outcome)
            yield outcome.trace.to_json()
