"""The scores of traces: printed as a table or as lines, and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import click
from rich.progress import Progress

from knowledgepulse_worker.errors import InputError, InvalidRecordError
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.tools.score.scores import Scores
from knowledgepulse_worker.tools.score.scoring import Scoring
from knowledgepulse_worker.tools.score.sources import Source
from knowledgepulse_worker.tools.terminal.console import errors, progress_bars
from knowledgepulse_worker.tools.terminal.files import Document, Rejections, echo

Result = TypeVar("Result")


def score_traces(
    source: Source,
    given: Scoring,
    keep: Path | None,
    html: Path | None,
    *,
    content: bool,
    validate_only: bool,
) -> int:
    """Print the scores of traces, and report those that cannot be scored.

    Args:
        source: the traces.
        given: how to score, and what to print.
        keep: the file for the traces that pass; None for none.
        html: the file for the page; None for none.
        content: whether the page has texts and names.
        validate_only: whether the traces are only validated.

    Returns:
        The exit status, 1 if there is a trace without a score.

    Raises:
        InputError: there is nothing to score, or a file cannot be written.
    """
    traces = _Traces(source, given.settings.limits.trace_bytes)
    if validate_only:
        settings = given.settings
        decode = partial(decode_trace, max_bytes=settings.limits.trace_bytes, unwrap=settings.records.unwrap)
        if good := sum(1 for _ in traces.each(decode)):
            backend, policy = settings.embedding.backend, settings.policy.digest
            errors.print(
                f"{counted(good, 'trace')} would be scored: embedding.backend {backend}, policy {policy}"
            )
    else:
        scores = None if keep is html is None else Scores(given.settings)
        _score(traces, given, scores)
        if scores is not None and scores.records:  # else, former files stay
            if keep is not None:
                errors.print(scores.keep(keep), markup=False)
            if html is not None:
                scores.save(html, content=content)
                errors.print(f"page: {printable(str(html))}", markup=False)
    return traces.exit_status()


def _score(traces: _Traces, given: Scoring, scores: Scores | None) -> None:
    records = []
    for document, scored in traces.each(given.scorer()):
        record = replace(scored, source=document.location)
        if scores is not None:
            scores.add(record, document.text)
        if given.prints_lines:
            echo(given.line_of(scored, document.text), traces.progress)
        else:
            records.append(record)
    if records:
        given.print_table(records, traces.source.noun)
        click.echo()
        for purpose, command in traces.source.next_commands.items():
            click.echo(f"to {purpose}: {command}")


class _Traces:
    """Traces, of which those that cannot be scored are reported on standard error.

    Args:
        source: where they come from.
        max_bytes: the largest trace.

    Attributes:
        progress: the bar that shows how much has been read, while they are read.
    """

    progress: Progress

    def __init__(self, source: Source, max_bytes: int) -> None:
        self.source, self._max_bytes = source, max_bytes
        self._rejections = Rejections()
        self._good = 0

    def each(self, take: Callable[[bytes], Result]) -> Iterator[tuple[Document, Result]]:
        """Yield each trace with what is made of it; what raises an InvalidRecordError is reported."""
        with progress_bars(self.source.column()) as self.progress:
            for document in self.source.documents(self.progress, self._max_bytes):
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
            InputError: there was nothing.
        """
        bad, report = self._rejections.count, self.source.report
        self._rejections.show_rest()
        report.show_unknown()
        if failed := report.failed:
            errors.print(f"{counted(failed, 'document')} not converted")
        elif not self._good + bad:
            raise InputError(self.source.nothing)
        if bad:
            hint = "" if self._good else "; `--from auto` converts sessions, spans and chats first"
            errors.print(f"{bad:,} of {self._good + bad:,} lines are invalid{hint}")
        return 1 if bad or failed else 0

    def _require_whole(self, value: bytes) -> None:
        """Refuse what is too large, of which only the beginning has been read."""
        if len(value) > self._max_bytes:
            raise InvalidRecordError("too_large", f"more bytes than limits.trace_bytes, {self._max_bytes}")
