"""Where the traces that are scored come from: files, or the sessions that agents keep on this machine."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import DownloadColumn, Progress, ProgressColumn

from knowledgepulse_convert import AUTO
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.tools.convert.conversion_options import EVERYTHING, Selection, refuse_conversion
from knowledgepulse_worker.tools.convert.convert_command import ConversionReport, converted, read_options
from knowledgepulse_worker.tools.convert.found_sessions import find_sessions, found_text, program_places
from knowledgepulse_worker.tools.convert.session_conversion import convert_sessions
from knowledgepulse_worker.tools.terminal.arguments import has_runs
from knowledgepulse_worker.tools.terminal.console import RecordsColumn, errors, tell
from knowledgepulse_worker.tools.terminal.files import Document, lines_of, refuse_other_files

NEWEST = 500
"""Sessions of those that are found that are scored, unless told otherwise."""


@dataclass(frozen=True)
class Source:
    """Traces to score.

    Attributes:
        noun: What they are called.
        report: How their conversion goes, if there is one.
        documents: Returns the traces. Its second argument is the largest, in bytes: of a longer line, only
            one byte more is kept in memory.
        column: What the progress bar shows.
        nothing: What to say if there is none.
        next_commands: What to type next, each after its purpose.
    """

    noun: str
    report: ConversionReport
    documents: Callable[[Progress, int], Iterable[Document]]
    column: Callable[[], ProgressColumn]
    nothing: str
    next_commands: dict[str, str]


def in_files(
    files: Sequence[str], format_name: str | None, conversion: dict[str, Any], wanted: Selection
) -> Source:
    """Return the traces in files, or the runs in them that are converted to traces.

    Args:
        files: names of files, and of folders of files to convert.
        format_name: the format to convert them from; None for traces.
        conversion: the values of the options of a conversion.
        wanted: the sessions of a database.

    Raises:
        InputError: the files hold no traces, but something else.
    """
    names = "FILES" if "-" in files else " ".join(printable(shlex.quote(name)) for name in files)
    again = f"kp-worker score {names}{f' --from {format_name}' if format_name else ''}"
    following = {
        "keep the best": f"{again} --keep best.jsonl",
        "look at all of them": f"{again} --html scores.html --open",
    }
    if format_name is None and not has_runs(files):
        following["choose what passes"] = f"kp-worker policy tune {names}"
    if format_name is None and (has_runs(files) or wanted != EVERYTHING):
        format_name = AUTO
    elif format_name is None:
        refuse_conversion(conversion, "the traces are scored as they are")
        refuse_other_files(files)
    options, report = read_options(**conversion), ConversionReport()

    def documents(progress: Progress, max_bytes: int) -> Iterable[Document]:
        if format_name is None:
            return lines_of(files, progress, max_bytes)
        return converted(files, format_name, report, progress, options, wanted, max_bytes)

    nothing = f"{printable(', '.join(files))}: no trace to score; one JSON trace per line is expected"
    return Source("trace", report, documents, DownloadColumn, nothing, following)


def found_here(agents: Sequence[str], wanted: Selection, conversion: dict[str, Any], *, all_: bool) -> Source:
    """Return the sessions that agents keep on this machine, and say what was found on standard error.

    Args:
        agents: the names of programs; all if there is none.
        wanted: from when on, and how many.
        conversion: the values of the options of a conversion.
        all_: whether all of them are wanted, instead of :data:`NEWEST`.

    Raises:
        InputError: nothing was found, or a program is not known.
    """
    options, report = read_options(**conversion), ConversionReport()
    found = find_sessions(Path.home(), agents, lambda path, error: tell(f"{path}: not read: {error}"))
    since = 0 if wanted.since is None else wanted.since.timestamp()
    found = [session for session in found if session.last_active >= since]
    if not found:
        raise InputError(
            f"no session was found{' of that time' if since else ''} where these agents keep them: "
            f"{', '.join(agents or program_places())}. Name a folder of yours, `kp-worker score FOLDER`, or "
            "try traces of others: `kp-worker sample traces > traces.jsonl`"
        )
    errors.print(f"found: {found_text(found, time.time())}", markup=False)
    limit = len(found) if all_ else wanted.newest or NEWEST
    sessions = found[-limit:]
    which = "all" if len(sessions) == len(found) else f"the newest {limit:,} (`--all` scores the others, too)"
    errors.print(f"nothing leaves this machine; scoring {which}, the oldest first", markup=False)
    return Source(
        "run",
        report,
        lambda progress, _: (
            Document(location, conversion.to_json())
            for location, conversion in convert_sessions(sessions, report, progress, options)
        ),
        RecordsColumn,
        "no session holds a run",
        {
            "keep the best": "kp-worker score --keep best.jsonl",
            "look at all of them": "kp-worker score --html scores.html --open",
        },
    )
