"""The conversion of sessions that were found, in the order of their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import attrgetter, itemgetter

from rich.progress import Progress, TaskID

from knowledgepulse_convert import AUTO, Conversion, ConversionError, NoRunError, Options, UnreadError
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.convert.conversion_options import Selection
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport, of_file, reported
from knowledgepulse_worker.tools.convert.databases import convert_database
from knowledgepulse_worker.tools.convert.file_conversion import LocatedConversion, convert_lines
from knowledgepulse_worker.tools.convert.found_sessions import Session
from knowledgepulse_worker.tools.terminal.files import opened

_Timed = Iterator[tuple[float, str, LocatedConversion]]
"""Results of conversions with the time and the file of their session."""


def convert_sessions(
    sessions: Sequence[Session], report: ConversionReport, progress: Progress, options: Options
) -> Iterator[tuple[str, Conversion]]:
    """Yield the conversions of sessions, the oldest first, and report failures.

    Each database is opened once, as it may have to be copied. A session without a run is no failure, as
    programs also keep what nobody asked them.
    """
    bar = progress.add_task("", total=len(sessions))
    in_files = [session for session in sessions if session.id is None]
    in_databases = sorted((session for session in sessions if session.id is not None), key=attrgetter("path"))
    sources = [_of_files(in_files, options, progress, bar)]
    for path, own in groupby(in_databases, attrgetter("path")):
        times = {str(session.id): session.last_active for session in own}
        sources.append(_of_database(path, times, options, progress, bar))
    return reported(_with_runs(merge(*sources, key=itemgetter(0)), report), report)


def _with_runs(results: _Timed, report: ConversionReport) -> Iterator[LocatedConversion]:
    for _, path, located in results:
        if not isinstance(located[1], NoRunError | UnreadError):
            yield located
        elif path not in report.unknown[-1:]:
            report.unknown.append(path)


def _of_files(sessions: Sequence[Session], options: Options, progress: Progress, bar: TaskID) -> _Timed:
    for session in sessions:
        progress.update(bar, advance=1, description=session.agent)
        try:
            for name, lines in opened([session.path], Progress(disable=True)):
                for located in convert_lines(name, lines, AUTO, of_file(options, name)):
                    yield session.last_active, name, located
        except InputError as error:  # the others go on
            problem = ConversionError(str(error).removeprefix(f"{session.path}: "))
            yield session.last_active, session.path, (session.path, problem)


def _of_database(
    path: str, times: dict[str, float], options: Options, progress: Progress, bar: TaskID
) -> _Timed:
    time = min(times.values())
    for located in convert_database(path, AUTO, options, Selection(ids=tuple(times))):
        progress.update(bar, advance=1)
        time = times.get(located[0].removeprefix(f"{path}:"), time)
        yield time, path, located
