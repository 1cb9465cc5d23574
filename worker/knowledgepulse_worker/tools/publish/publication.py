"""Publishing files and what waits in a spool, converted before if they are sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

from rich.progress import DownloadColumn

from knowledgepulse_convert import AUTO, Options
from knowledgepulse_kafka.errors import NoBrokerError, TooLargeError
from knowledgepulse_worker.errors import InputError, InvalidRecordError
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.settings import Settings, load_settings, warning_of_ignored_variables
from knowledgepulse_worker.tools.common.record_key import KeyBy, key_of
from knowledgepulse_worker.tools.convert.apart import ConvertedFile, converted_apart
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport, converted, read_options
from knowledgepulse_worker.tools.publish.asking import Gathered
from knowledgepulse_worker.tools.publish.spool import NotSpooledError, Spool, opened, reject
from knowledgepulse_worker.tools.publish.trace_publisher import PublishProgress, TracePublisher, publish_lines
from knowledgepulse_worker.tools.publish.waiting_files import WaitingFiles
from knowledgepulse_worker.tools.terminal.console import errors, progress_bars, tell
from knowledgepulse_worker.tools.terminal.files import (
    Document,
    Rejections,
    lines_of,
    refuse_other_files,
)

SPOOL_LIMIT = 15.0
"""Seconds to publish what waits in a spool, for which an agent or a person may wait."""


@dataclass
class Publication:
    """What one command publishes.

    Attributes:
        format_name: the format of the files; None for traces.
        is_hook: whether the files are sessions that an agent has just ended; then only errors are printed.
        asks: whether to show what would be published, and to ask.
    """

    settings: Settings
    key: KeyBy
    format_name: str | None
    options: Options
    is_hook: bool
    asks: bool
    _report: ConversionReport = field(default_factory=ConversionReport)
    _failures: int = 0  # besides those of the report

    @classmethod
    def of(
        cls,
        config: Path | None,
        key: KeyBy,
        format_name: str | None,
        options: dict[str, Any],
        *,
        is_hook: bool,
        asks: bool,
    ) -> Self:
        """Read the settings and the options of the conversion."""
        if warning := warning_of_ignored_variables():
            tell(warning)
        return cls(load_settings(config), key, format_name, read_options(**options), is_hook, asks)

    @property
    def exit_status(self) -> int:
        """The command's exit status."""
        return 1 if self._report.failed or self._failures else 0

    def publish(self, files: Iterable[str], skip: int) -> None:
        """Publish files without their first records."""
        with self._lines(files, skip) as lines:
            self._send(lines, TracePublisher(self.settings, self.key), skip=skip)

    def rehearse(self, files: Iterable[str], skip: int) -> None:
        """Print the effect that publishing would have, and count the invalid documents as failures."""
        from knowledgepulse_worker.records.decode import decode_trace  # noqa: PLC0415 - publishing needs no NumPy

        settings, records, without_key, rejections = self.settings, 0, 0, Rejections()
        with self._documents(files) as documents:
            for document in islice(documents, skip, None):
                value = document.text.strip()
                records += 1
                without_key += key_of(value, self.key) is None
                try:
                    decode_trace(value, settings.limits.trace_bytes, settings.records.unwrap)
                except InvalidRecordError as error:
                    rejections.show(document.location, error)
            rejections.show_rest()
            where = f"{settings.topics.raw} at {settings.kafka.bootstrap_servers}"
            errors.print(f"{counted(records, 'record')} would be published to {where}, keyed by {self.key}")
            if without_key:
                errors.print(f"{without_key} of them have no {self.key} and would be published without a key")
            if rejections.count:
                errors.print(f"{rejections.count} of them are invalid and would become dead letters")
        self._failures += rejections.count

    def publish_spooled(self, files: Iterable[str], spool: Spool) -> None:
        """Publish what waits in a spool, and files, which wait there, too, as far as it can be written.

        The sessions of a hook have found no place there.
        """
        with self._lines(files) as lines:
            self._failures += self.is_hook and bool(files)
            unplaced = lines if self.is_hook else self._add(lines, spool)
            self._send_waiting(spool)
            self._send_unplaced(unplaced)

    @contextmanager
    def _lines(self, files: Iterable[str], skip: int = 0) -> Iterator[Iterable[bytes]]:
        """Yield the records of files without their first ones, once somebody has agreed if that is asked."""
        with Gathered() as gathered:
            with self._documents(files) as documents:
                lines = (document.text for document in islice(documents, skip, None))
                if not self.asks:
                    yield lines
                    return
                gathered.add(lines)
            gathered.ask(self.settings)
            yield gathered.lines()

    @contextmanager
    def _documents(self, files: Iterable[str]) -> Iterator[Iterable[Document]]:
        """Yield what is published of files, and report the conversion if there was one."""
        if self.format_name is None and not self.is_hook:
            refuse_other_files(files)
        with progress_bars(DownloadColumn()) as progress:
            if self.is_hook:
                yield self._converted(files)
            elif self.format_name is None:
                yield lines_of(files, progress)
            else:
                yield converted(files, self.format_name, self._report, progress, self.options)
        if not self.is_hook and (self._report.traces or self._report.failed):
            self._report.show()

    def _converted(self, files: Iterable[str]) -> list[Document]:
        documents: list[Document] = []

        def take(name: str, result: ConvertedFile) -> None:
            if result.problem is not None:
                raise InputError(result.problem)
            self._failures += result.failed
            documents.extend(Document(name, trace) for trace in result.traces)

        converted_apart(files, self.format_name or AUTO, self.options, take)
        return documents

    def _add(self, lines: Iterable[bytes], spool: Spool, name: str = "") -> Iterable[bytes]:
        """Let lines wait in a spool; return those that have no place there."""
        try:
            spool.add(lines, name)
        except NotSpooledError as error:
            tell(f"{error}")
            self._failures += 1
            return error.lines
        return ()

    def _send_unplaced(self, lines: Iterable[bytes]) -> None:
        lines = filter(None, lines)
        if first := next(lines, None):
            self._send(chain([first], lines), TracePublisher(self.settings, self.key), limit=SPOOL_LIMIT)

    def _send_waiting(self, spool: Spool) -> None:
        """Publish what waits in a spool, also what other processes add meanwhile."""
        while not spool.is_empty:
            with spool.taken() as is_free:
                if not is_free:
                    if not self.is_hook:
                        tell(f"{spool.folder}: another process publishes what waits there")
                    return
                self._convert_waiting(spool)
                if not self._send_files(spool):
                    return

    def _send_files(self, spool: Spool) -> bool:
        """Publish the files of traces in a spool; return whether the brokers took all of them in time."""
        files = spool.traces
        waiting = WaitingFiles(partial(TracePublisher, self.settings, self.key), SPOOL_LIMIT)
        try:
            waiting.publish(files)
        except NoBrokerError as error:
            left = sum(map(Path.exists, files))
            done = f"{counted(len(files) - left, 'file')} published; " if left < len(files) else ""
            tell(f"{done}{error}; waiting in {spool.folder}: {left}")
            return False
        finally:
            self._failures += waiting.rejected
        if waiting.records:
            self._print_published(waiting.records, waiting.without_key)
        return True

    def _convert_waiting(self, spool: Spool) -> None:
        """Put the traces of waiting sessions in their place."""
        sessions = []
        for session in spool.sessions:
            if (file := opened(session)) is None:
                self._set_aside(session, f"{session}: is no file, such as a link or a folder")
            else:
                file.close()
                sessions.append(str(session))

        def take(name: str, result: ConvertedFile) -> None:
            session = Path(name)
            self._send_unplaced(self._add(result.traces, spool, session.stem))
            if result.failed or result.problem:
                self._set_aside(session, result.problem or f"{name}: not converted")
            else:
                session.unlink()

        if sessions:
            converted_apart(sessions, self.format_name or AUTO, self.options, take)

    def _set_aside(self, file: Path, problem: str) -> None:
        self._failures += 1
        tell(f"{problem}; kept in {reject(file)}")

    def _send(
        self,
        lines: Iterable[bytes],
        publisher: TracePublisher,
        *,
        skip: int | None = None,
        limit: float | None = None,
    ) -> None:
        published = publisher.published
        try:
            publish_lines(lines, publisher, limit)
        except BaseException as error:  # Ctrl-C and SIGTERM too
            if skip is not None and not self.is_hook:
                _print_how_to_continue(published, skip, is_too_large=isinstance(error, TooLargeError))
            raise
        self._print_published(published.records, published.without_key)

    def _print_published(self, records: int, without_key: int) -> None:
        if self.is_hook:
            return
        errors.print(f"{counted(records, 'record')} published to {self.settings.topics.raw}")
        if without_key:
            errors.print(f"{without_key} of them have no {self.key} and were published without a key")


def _print_how_to_continue(published: PublishProgress, skip: int, *, is_too_large: bool) -> None:
    done, unknown = skip + published.confirmed, published.records - published.confirmed
    if is_too_large and unknown <= 1:  # this one was sent and refused, or is larger than any trace may be
        errors.print(f"record {done + 1} is too large; continue after it with --skip {done + 1}")
        return
    if done:
        errors.print(f"stopped early: the first {done} records are confirmed; continue with --skip {done}")
    else:
        errors.print("stopped early: no record is confirmed")
    if unknown:
        errors.print(f"the next {unknown} may or may not have been published")
