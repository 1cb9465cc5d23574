"""``kp-worker publish``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.progress import DownloadColumn

from schemas.convert import AUTO, SOURCES
from worker.commands.convert import ConversionReport, conversion_options, converted
from worker.commands.files import files_argument, lines_of
from worker.options import config_option
from worker.produce import publish_lines
from worker.progress import errors, progress_bars
from worker.settings import load_settings


@click.command()
@files_argument
@config_option
@click.option(
    "--from", "source", type=click.Choice([AUTO, *SOURCES]), help="Convert the files from this format first."
)
@conversion_options
@click.option(
    "--key",
    type=click.Choice(["id", "agent_id", "task_domain"]),
    default="id",
    show_default=True,
    help="Record key. Traces with the same key are compared with each other.",
)
def publish(
    files: tuple[BinaryIO, ...], config: Path | None, key: Any, source: str | None, **options: Any
) -> None:
    """Publish FILES, one JSON trace per line, to the raw topic.

    Lines are published unchanged; invalid traces will become dead letters. `-` reads standard input. With
    `--from`, the files are first converted as by `kp-worker convert`.
    """
    settings = load_settings(config)
    report = ConversionReport()
    with progress_bars(DownloadColumn()) as progress:
        if source is None:
            lines: Iterator[bytes] = (line.text for line in lines_of(files, progress))
        else:
            lines = converted(files, source, report, progress, **options)
        published = asyncio.run(publish_lines(lines, settings, key))
    if source is not None:
        report.show()
    errors.print(f"{published.records} records published to {settings.topics.raw}")
    if published.without_key:
        errors.print(f"{published.without_key} of them have no {key} and were published without a key")
    sys.exit(1 if report.failed else 0)
