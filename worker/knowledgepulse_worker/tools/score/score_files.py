"""The scores of the traces in files."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import click
from rich.progress import DownloadColumn, Progress

from knowledgepulse_convert import AUTO, Options
from knowledgepulse_worker.errors import InputError, InvalidRecordError
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.tools.convert.conversion_options import refuse_conversion
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport, converted, read_options
from knowledgepulse_worker.tools.score.scoring import Scoring
from knowledgepulse_worker.tools.terminal.arguments import has_runs
from knowledgepulse_worker.tools.terminal.console import errors, progress_bars
from knowledgepulse_worker.tools.terminal.files import (
    Document,
    Rejections,
    echo,
    lines_of,
    refuse_other_files,
)

Result = TypeVar("Result")


def score_files(
    files: Sequence[str],
    format_name: str | None,
    conversion: dict[str, Any],
    given: Scoring,
    *,
    validate_only: bool,
) -> int:
    """Print the scores of the traces in files, and report those that cannot be scored.

    Args:
        files: names of files, and of folders of files to convert.
        format_name: the format to convert them from; None for traces.
        conversion: the values of the options of a conversion.
        given: how to score, and what to print.
        validate_only: whether the traces are only validated.

    Returns:
        The exit status, 1 if there is a trace without a score.

    Raises:
        InputError: there is nothing in the files, or no traces.
    """
    if format_name is None and has_runs(files):
        format_name = AUTO
    elif format_name is None:
        refuse_conversion(conversion, "the traces are scored as they are")
        refuse_other_files(files)
    options = read_options(**conversion)
    traces = _Traces(files, format_name, given.settings.limits.trace_bytes, options)
    if validate_only:
        _validate(traces, given)
    elif given.prints_lines:
        _print_lines(traces, given)
    else:
        _print_table(traces, given)
    return traces.exit_status()


def _validate(traces: _Traces, given: Scoring) -> None:
    settings = given.settings
    good = sum(
        1
        for _ in traces.each(
            partial(decode_trace, max_bytes=settings.limits.trace_bytes, unwrap=settings.records.unwrap)
        )
    )
    backend, policy = settings.embedding.backend, settings.policy.digest
    if good:
        errors.print(
            f"{counted(good, 'trace')} would be scored: embedding.backend {backend}, policy {policy}"
        )


def _print_lines(traces: _Traces, given: Scoring) -> None:
    for document, scored in traces.each(given.scorer()):
        echo(given.line_of(scored, document.text), traces.progress)


def _print_table(traces: _Traces, given: Scoring) -> None:
    scored = traces.each(given.scorer())
    records = [replace(record, source=document.location) for document, record in scored]
    if records:
        given.print_table(records, "trace")
        click.echo(f"\n{_next_command(traces)}")


def _next_command(traces: _Traces) -> str:
    """Return what to type next."""
    files = " ".join(printable(shlex.quote(name)) for name in traces.files)
    if traces.format_name is not None:
        return f"to keep the traces: kp-worker convert {files} > traces.jsonl"
    if "-" in traces.files:
        return "to choose what passes: kp-worker policy tune FILES"
    return f"to choose what passes: kp-worker policy tune {files}"


class _Traces:
    """The traces of files, of which those that cannot be scored are reported on standard error.

    Args:
        files: their names.
        format_name: the format to convert them from; None for traces.
        max_bytes: the largest trace.
        options: how they are converted.

    Attributes:
        progress: the bar that shows how much has been read, while they are read.
    """

    progress: Progress

    def __init__(
        self, files: Sequence[str], format_name: str | None, max_bytes: int, options: Options
    ) -> None:
        self.files, self.format_name, self._max_bytes, self._options = files, format_name, max_bytes, options
        self._conversion, self._rejections = ConversionReport(), Rejections()
        self._good = 0

    def each(self, take: Callable[[bytes], Result]) -> Iterator[tuple[Document, Result]]:
        """Yield each trace with what is made of it; what raises an InvalidRecordError is reported."""
        with progress_bars(DownloadColumn()) as self.progress:
            for document in self._documents():
                value = document.text.strip()
                try:
                    self._require_whole(value)
                    result = take(value)
                except InvalidRecordError as error:
                    self._rejections.show(document.location, error)
                    continue
                self._good += 1
                yield replace(document, text=value), result

    def exit_status(self) -> int:
        """Report how many were not scored; return 1 if there are any.

        Raises:
            InputError: there is nothing in the files.
        """
        bad = self._rejections.count
        self._rejections.show_rest()
        if failed := self._conversion.failed:
            errors.print(f"{counted(failed, 'document')} not converted")
        elif not self._good + bad:
            names = printable(", ".join(self.files))
            raise InputError(f"{names}: no trace to score; one JSON trace per line is expected")
        if bad:
            hint = "" if self._good else "; `--from auto` converts sessions, spans and chats first"
            errors.print(f"{bad:,} of {self._good + bad:,} lines are invalid{hint}")
        return 1 if bad or failed else 0

    def _require_whole(self, value: bytes) -> None:
        """Refuse what is too large, of which only the beginning has been read."""
        if len(value) > self._max_bytes:
            raise InvalidRecordError("too_large", f"more bytes than limits.trace_bytes, {self._max_bytes}")

    def _documents(self) -> Iterable[Document]:
        if self.format_name is None:
            return lines_of(self.files, self.progress, self._max_bytes)
        return converted(self.files, self.format_name, self._conversion, self.progress, self._options)
