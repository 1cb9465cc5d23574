"""``kp-worker publish``."""

from __future__ import annotations

import json
import logging
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource
from rich.progress import DownloadColumn

from knowledgepulse_kafka import CLIENT
from knowledgepulse_kafka.errors import NoBrokerError, TooLargeError
from knowledgepulse_schemas.convert import AUTO, INPUT_FORMATS
from knowledgepulse_worker.errors import InputError, InvalidRecordError
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.settings import Settings, load_settings
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.tools.common.record_key import KeyBy, key_of
from knowledgepulse_worker.tools.convert.apart import converted_apart
from knowledgepulse_worker.tools.convert.convert_command import (
    ConversionReport,
    conversion_options,
    converted,
    read_options,
)
from knowledgepulse_worker.tools.publish.spool import Spool, opened, reject, reject_line
from knowledgepulse_worker.tools.publish.trace_publisher import PublishProgress, TracePublisher, publish_lines
from knowledgepulse_worker.tools.terminal.console import errors, progress_bars
from knowledgepulse_worker.tools.terminal.files import (
    Document,
    files_argument,
    lines_of,
    print_rejected,
    refuse_other_files,
)

_MAX_HOOK = 16_777_216
"""Bytes of a hook's input."""

SPOOL_LIMIT = 15.0
"""Seconds to publish what waits in a spool: agents end a hook that takes longer than half a minute."""


@click.command()
@files_argument
@config_option
@click.option(
    "--from",
    "format_name",
    type=click.Choice([AUTO, *INPUT_FORMATS]),
    help="Convert the files from this format first.",
)
@conversion_options
@click.option(
    "--key",
    type=click.Choice(get_args(KeyBy)),
    default="id",
    help="Record key. Traces with the same key are compared with each other.",
)
@click.option(
    "--skip",
    type=click.IntRange(0, sys.maxsize),
    default=0,
    metavar="N",
    help="Skip the first N records, which an earlier run reported as confirmed.",
)
@click.option(
    "--spool",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder where traces wait if no broker can be reached; the next run publishes them.",
)
@click.option(
    "--hook",
    is_flag=True,
    help="FILES contain the input that Claude Code or Codex pass to a hook; publish the sessions that it "
    "names.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be published, without a broker.")
def publish(
    files: tuple[str, ...],
    config: Path | None,
    key: KeyBy,
    format_name: str | None,
    skip: int,
    spool: Path | None,
    hook: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Publish FILES, one JSON trace per line, to the raw topic.

    Lines are published unchanged; invalid traces will become dead letters. `-` reads standard input. With
    `--from`, the files are first converted, as `kp-worker convert` does.

    If no broker can be reached, the command waits; retries publish nothing twice. If it stops early, it
    prints the number of confirmed records, and `--skip` continues after them. With `--spool`, it waits at
    most 15 seconds for the brokers, and a trace may be published twice after a crash or an outage. With
    `--hook`, it prints only errors.
    """
    if hook:
        files, format_name = tuple(map(_session_of, files)), format_name or AUTO
    if format_name is None:
        _refuse(options)
    if spool is not None and (skip or dry_run):
        raise click.UsageError("--spool goes with neither --skip nor --dry-run")
    settings = load_settings(config)
    if format_name is None:
        refuse_other_files(files)
    report = ConversionReport()
    with progress_bars(DownloadColumn()) as progress:
        if format_name is None:
            documents: Iterable[Document] = lines_of(files, progress)
        elif hook:
            documents = converted_apart(files, format_name, report, read_options(**options))
        else:
            documents = converted(files, format_name, report, progress, read_options(**options))
        documents = islice(documents, skip, None)
        invalid = 0
        if dry_run:
            invalid = _rehearse(documents, settings, key)
        elif spool is None:
            _publish(documents, TracePublisher(settings, key), skip=skip, quiet=hook)
        else:
            invalid = _publish_spooled(documents, settings, key, Spool(spool), quiet=hook)
    if format_name is not None and not hook:
        report.show()
    sys.exit(1 if report.failed or invalid else 0)


def _refuse(options: Iterable[str]) -> None:
    """Refuse the options of a conversion if nothing is converted."""
    context = click.get_current_context()
    given = [name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{names} needs --from: without it, the traces are published unchanged")


def _session_of(file: str) -> str:
    """Return the session's file that a hook's input names; raise an InputError if it names none."""
    try:
        with click.open_file(file, "rb") as opened_file:
            given = json.loads(opened_file.read(_MAX_HOOK))
        path = Path(given.get("agent_transcript_path") or given["transcript_path"]).expanduser()
        is_file = _may_be_file(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, RuntimeError) as error:
        raise InputError(
            f'{printable(file)}: not a hook\'s input: {{"transcript_path": "…"}} is expected'
        ) from error
    if not is_file:
        raise InputError(f"{printable(str(path))}: cannot be read: it is no file")
    return str(path.absolute())  # `-` would be standard input


def _may_be_file(path: Path) -> bool:
    """Return whether a path is that of a file, or of nothing; raise a ValueError if it can be neither's."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # opening it will tell
        return True


def _publish_spooled(
    documents: Iterable[Document], settings: Settings, key: KeyBy, spool: Spool, *, quiet: bool
) -> int:
    """Publish the waiting documents of earlier runs, then these; return the number of files set aside."""
    spool.add(document.text for document in documents)
    rejected, deadline = 0, time.monotonic() + SPOOL_LIMIT
    while not spool.is_empty:  # another process may add to it until this one has given it back
        with spool.taken() as files:
            if files is None:
                if not quiet:
                    errors.print(f"{spool.folder}: another process publishes what waits there", markup=False)
                break
            for file in files:
                try:
                    rejected += _publish_file(file, settings, key, deadline, quiet=quiet)
                except NoBrokerError as error:
                    left = sum(map(Path.exists, files))
                    errors.print(f"{error}; waiting in {file.parent}: {left}", markup=False, emoji=False)
                    return rejected
                except (TooLargeError, _NoFileError) as error:
                    rejected += 1
                    _print_kept(error, reject(file))
                else:
                    file.unlink()
    return rejected


def _print_kept(error: Exception, kept: Path) -> None:
    errors.print(f"{error}; kept in {kept}", markup=False, emoji=False)


class _NoFileError(InputError):
    """What waits in a spool is no file."""


def _publish_file(file: Path, settings: Settings, key: KeyBy, deadline: float, *, quiet: bool) -> int:
    """Publish a file's traces but those that are too large, which are set aside; return their number."""
    lines = opened(file)
    if lines is None:
        raise _NoFileError(f"{file}: is no file, such as a link or a folder")
    publisher, rejected = TracePublisher(settings, key), 0

    def documents() -> Iterator[Document]:
        nonlocal rejected
        for number, line in enumerate(lines, 1):
            try:
                publisher.require_size(line.strip())
            except TooLargeError as error:
                _print_kept(error, reject_line(file, number, line))
                rejected += 1
            else:
                yield Document(str(file), line)

    with lines:
        _publish(documents(), publisher, quiet=quiet, limit=deadline - time.monotonic())
    return rejected


def _publish(
    documents: Iterable[Document],
    publisher: TracePublisher,
    *,
    quiet: bool,
    skip: int | None = None,
    limit: float | None = None,
) -> None:
    # The publisher warns that no broker answers; its client would log each attempt.
    logging.getLogger(CLIENT).setLevel(logging.CRITICAL)
    published = publisher.published
    try:
        publish_lines((document.text for document in documents), publisher, limit)
    except BaseException as error:  # Ctrl-C and SIGTERM too
        if skip is not None and not quiet:
            _print_how_to_continue(published, skip, is_too_large=isinstance(error, TooLargeError))
        raise
    if quiet:
        return
    errors.print(f"{counted(published.records, 'record')} published to {publisher.topic}")
    if published.without_key:
        without, key = published.without_key, publisher.key_by
        errors.print(f"{without} of them have no {key} and were published without a key")


def _print_how_to_continue(published: PublishProgress, skip: int, *, is_too_large: bool) -> None:
    done, unknown = skip + published.confirmed, published.records - published.confirmed
    if is_too_large and unknown <= 1:  # this one was sent and refused, or is larger than any trace may be
        errors.print(f"record {done + 1} is too large; continue after it with --skip {done + 1}")
        return
    if published.records:
        errors.print(f"stopped early: the first {done} records are confirmed; continue with --skip {done}")
    if unknown:
        errors.print(f"the next {unknown} may or may not have been published")


def _rehearse(documents: Iterable[Document], settings: Settings, key: KeyBy) -> int:
    """Print the effect that publishing would have; return the number of invalid documents."""
    from knowledgepulse_worker.records.decode import decode_trace  # noqa: PLC0415 - publishing needs no NumPy

    records = without_key = invalid = 0
    for document in documents:
        value = document.text.strip()
        records += 1
        without_key += key_of(value, key) is None
        try:
            decode_trace(value, settings.limits.trace_bytes)
        except InvalidRecordError as error:
            invalid += 1
            print_rejected(document, error)
    where = f"{settings.topics.raw} at {settings.kafka.bootstrap_servers}"
    errors.print(f"{counted(records, 'record')} would be published to {where}, keyed by {key}")
    if without_key:
        errors.print(f"{without_key} of them have no {key} and would be published without a key")
    if invalid:
        errors.print(f"{invalid} of them are invalid and would become dead letters")
    return invalid
