"""``kp-worker convert``, and the conversion shared with ``publish``."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import click
from rich.progress import DownloadColumn, Progress

from knowledgepulse_convert import (
    AUTO,
    INPUT_FORMATS,
    Conversion,
    ConversionError,
    Losses,
    Options,
    UnreadError,
)
from knowledgepulse_convert.common.ir import UNORDERED
from knowledgepulse_schemas.trace import rewards_of
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.policy import DEFAULT_DOMAIN
from knowledgepulse_worker.tools.convert.conversion_options import (
    EVERYTHING,
    FORMAT,
    Selection,
    conversion_options,
    selection_options,
)
from knowledgepulse_worker.tools.convert.databases import convert_database
from knowledgepulse_worker.tools.convert.file_conversion import (
    LocatedConversion,
    convert_lines,
    read_domains,
    read_outcomes,
)
from knowledgepulse_worker.tools.convert.results_folders import files_in, holds_traces, is_binary, joined
from knowledgepulse_worker.tools.terminal.arguments import files_argument, is_database
from knowledgepulse_worker.tools.terminal.console import errors, progress_bars, tell
from knowledgepulse_worker.tools.terminal.files import Document, echo_pieces, lines_of, opened

_EVENT = re.compile(r"event-\d+-[\w-]+\.json")
"""The name of a file in which OpenHands keeps an event."""
_MAX_SCORES = 10
"""Names of scores that a report lists."""
_MAX_UNKNOWN = 3
"""Names of files without a run that a report lists."""
_MAX_PROBLEMS = 1000
"""Different errors of a file that are remembered, to print each once."""


def _list_formats(ctx: click.Context, _param: click.Parameter, is_given: bool) -> None:
    if is_given:
        for name, input_format in sorted(INPUT_FORMATS.items()):
            click.echo(f"{name:18}{input_format.accepts}")
        ctx.exit()


@click.command()
@files_argument
@click.option(
    "--from",
    "format_name",
    type=FORMAT,
    default=AUTO,
    help="Format of the files.",
)
@conversion_options
@selection_options("of a database")
@click.option(
    "--formats",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_formats,
    help="List the formats and what each accepts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the totals on standard error as JSON.")
def convert(
    files: tuple[str, ...], format_name: str, as_json: bool, conversion: dict[str, Any], wanted: Selection
) -> None:
    """Convert FILES from other formats to traces, one JSON object per line.

    A file contains one JSON document, or one per line; `--from otlp` also reads protobuf. `-` reads standard
    input. Of a folder, all files at any depth are read, but what is hidden or a link; those that hold no run
    are counted. Documents that are not agent runs are reported on standard error, and the exit status is then
    1. Values for which traces have no field are reported, too.
    """
    report = ConversionReport()
    with progress_bars(DownloadColumn()) as progress:
        for _, trace in conversions(files, format_name, report, progress, read_options(**conversion), wanted):
            echo_pieces(trace.pieces(), progress)
    if as_json:
        click.echo(json.dumps(report.as_dict()), err=True)
    else:
        report.show()
    sys.exit(1 if report.failed else 0)


@dataclass
class ConversionReport:
    """Totals of a conversion."""

    traces: int = 0
    with_outcome: int = 0
    with_domain: int = 0
    failed: int = 0
    with_id: int = 0
    ids: set[int] = field(default_factory=set)  # hashes, which take less memory
    unrecorded: Counter[str] = field(default_factory=Counter)  # traces by what they lack
    unordered: Counter[str] = field(default_factory=Counter)  # traces without the order of steps, by format
    unused: Counter[str] = field(default_factory=Counter)  # traces without a label by the scores they have
    losses: Losses = field(default_factory=Losses)
    unknown: list[str] = field(default_factory=list)  # files of folders that hold no run

    def to_convert(self, files: Iterable[str], own: list[str] | None) -> Iterator[str]:
        """Yield the files of a folder but those that hold no text, whose first line may be gigabytes.

        Those that hold traces already are added to ``own`` instead, if it is given.
        """
        for name in files:
            try:
                if is_binary(Path(name)):
                    self.unknown.append(name)
                elif own is not None and holds_traces(Path(name)):
                    own.append(name)
                else:
                    yield name
            except InputError as error:
                self.refuse(error)

    def refuse(self, error: InputError) -> None:
        """Report what cannot be read in a folder; the rest of it is."""
        self.failed += 1
        tell(str(error))

    def known(self, name: str, outcomes: Iterable[LocatedConversion]) -> Iterator[LocatedConversion]:
        """Yield the outcomes of a folder's file; if it holds no known format, they are one unknown file."""
        unread: list[LocatedConversion] | None = []
        try:
            for located in outcomes:
                if unread is None:
                    yield located
                elif not isinstance(located[1], UnreadError):
                    yield from [*unread, located]
                    unread = None
                elif len(unread) < _MAX_PROBLEMS:
                    unread.append(located)
        except InputError as error:  # of a compressed file; the others go on
            yield name, ConversionError(str(error).removeprefix(f"{name}: "))
        else:
            if unread is not None:
                self.unknown.append(name)

    def count(self, conversion: Conversion) -> None:
        """Count a converted trace."""
        metadata = conversion.metadata.model_extra or {}
        self.traces += 1
        self.with_outcome += "label" in {metadata.get("outcome_source"), metadata.get("confidence_source")}
        self.with_domain += conversion.metadata.task_domain != "default"
        if native_id := conversion.metadata.native_id:
            self.with_id += 1
            self.ids.add(hash(native_id))
        unrecorded = metadata.get("unrecorded", ())
        if UNORDERED in unrecorded:
            self.unordered[conversion.metadata.framework or "-"] += 1
        if metadata.get("outcome_source") != "label":
            missing = [each for each in unrecorded if each != UNORDERED]
            if conversion.metadata.success and missing:
                self.unrecorded[f"{conversion.metadata.framework}: no {' or '.join(missing)}"] += 1
            self.unused.update(rewards_of(conversion.metadata.rewards).keys())
        self.losses.merge(conversion.losses)

    def as_dict(self) -> dict[str, Any]:
        """Return the totals, and what is not in the traces by its path."""
        return {
            "traces": self.traces,
            "with_outcome": self.with_outcome,
            "failed": self.failed,
            **({"unknown": self.unknown} if self.unknown else {}),
            "losses": {path: asdict(loss) for path, loss in sorted(self.losses.items())},
        }

    def show(self) -> None:
        """Print the totals on standard error, largest losses first."""
        errors.print(
            f"{counted(self.traces, 'trace')}, {self.with_outcome} with a known outcome; "
            f"{self.failed} not converted"
        )
        if self.traces and not self.with_domain:
            errors.print("all have the task domain default; `--domain` sets others, such as code")
        for missing, traces in self.unrecorded.items():
            errors.print(
                f"warning: {counted(traces, 'trace')} of {missing} are recorded, so failures may be told as "
                "successes"
            )
        for name, traces in self.unordered.items():
            errors.print(
                f"warning: {counted(traces, 'trace')} of {name}: the {UNORDERED} is not recorded, so that of "
                "the steps may be another"
            )
        if repeated := self.with_id - len(self.ids):
            errors.print(
                f"{counted(repeated, 'trace')} with the id of an earlier one: the `id` of a row has to be "
                "that of a run, not of its task"
            )
        self.show_unknown()
        if self.unused:
            names = ", ".join(
                f"{printable(name)} ({n:,})" for name, n in self.unused.most_common(_MAX_SCORES)
            )
            errors.print(
                f"scores of traces that nobody judged: {names}; `--success-from NAME` takes one as the "
                "judgement"
            )
        if self.losses:
            errors.print("not in the traces:")
        for path, loss in sorted(self.losses.items(), key=lambda item: (-item[1].characters, item[0])):
            lost = f"{counted(loss.values, 'value')}, {counted(loss.characters, 'character')}"
            tell(f"  {path}: {lost}")

    def show_unknown(self) -> None:
        """Print the files that hold no run, if there are any."""
        if not self.unknown:
            return
        first = ", ".join(map(printable, self.unknown[:_MAX_UNKNOWN]))
        more = f" and {len(self.unknown) - _MAX_UNKNOWN:,} more" if len(self.unknown) > _MAX_UNKNOWN else ""
        errors.print(f"{counted(len(self.unknown), 'file')} without a run of a known format: {first}{more}")


def read_options(
    domain: Sequence[str],
    domain_map: Path | None,
    outcomes: Path | None,
    success_from: Sequence[str] = (),
    **others: Any,
) -> Options:
    """Return the options of a conversion; raise an InputError if a file or a number is invalid."""
    rules = (rule.rpartition("=") for rule in domain)
    given = {name: value for name, value in others.items() if value is not None}
    return Options(
        domains={
            **({} if domain_map is None else read_domains(domain_map)),
            **{name or DEFAULT_DOMAIN: own for name, _, own in rules},
        },
        outcomes={} if outcomes is None else read_outcomes(outcomes),
        success_from=dict(map(_least_of, success_from)),
        **given,
    )


def _least_of(rule: str) -> tuple[str, float]:
    """Return the name of a score, and the least that a right run has."""
    name, equals, number = rule.rpartition("=")
    try:
        return (name, float(number)) if equals else (rule, 1.0)
    except ValueError:
        raise InputError(f"--success-from {rule}: {number!r} is not a number, as in NAME=0.5") from None


def converted(
    files: Iterable[str],
    format_name: str,
    report: ConversionReport,
    progress: Progress,
    options: Options,
    wanted: Selection = EVERYTHING,
    max_bytes: int | None = None,
) -> Iterator[Document]:
    """Yield the traces of files as JSON, and report failures.

    Files in folders that hold traces already come last, as they are; see :func:`lines_of` for ``max_bytes``.
    """
    own: list[str] = []
    for location, conversion in conversions(files, format_name, report, progress, options, wanted, own):
        yield Document(location, conversion.to_json())
    yield from lines_of(own, progress, max_bytes)


def conversions(
    files: Iterable[str],
    format_name: str,
    report: ConversionReport,
    progress: Progress,
    options: Options,
    wanted: Selection = EVERYTHING,
    own: list[str] | None = None,
) -> Iterator[tuple[str, Conversion]]:
    """Yield the conversions of files with their locations, and report failures.

    ``own``: gets the files in folders that hold traces already, which otherwise are no runs.
    """
    for folder, paths in _in_folders(files, report):
        before = report.traces + report.failed + len(own or ())
        readable = paths if folder is None else report.to_convert(paths, own)
        for name, lines in _opened(readable, progress):
            if is_database(name):
                outcomes = convert_database(name, format_name, options, wanted)
            elif wanted != EVERYTHING:
                raise InputError(
                    f"{name}: no database of an agent, in which --session, --since and --newest choose"
                )
            else:
                outcomes = convert_lines(name, joined(name, lines), format_name, of_file(options, name))
            yield from reported(outcomes if folder is None else report.known(name, outcomes), report)
        if folder is not None and report.traces + report.failed + len(own or ()) == before:
            report.failed += 1
            tell(f"{folder}: holds no run of a known format")


def _in_folders(files: Iterable[str], report: ConversionReport) -> Iterator[tuple[str | None, Iterable[str]]]:
    """Yield the files of each folder with its name, and the files between the folders."""
    for is_folder, names in groupby(files, os.path.isdir):
        if is_folder:
            yield from ((name, map(str, files_in(Path(name), report.refuse))) for name in names)
        else:
            yield None, names


def reported(
    outcomes: Iterable[LocatedConversion], report: ConversionReport
) -> Iterator[tuple[str, Conversion]]:
    """Yield the conversions of a file; report failures, and name each suspect loss once."""
    repeats, warned = _Repeats(), set[str]()
    for location, outcome in outcomes:
        if isinstance(outcome, ConversionError):
            report.failed += 1
            repeats.show(location, str(outcome))
            continue
        report.count(outcome)
        for path, loss in outcome.losses.items():
            if loss.suspect and path not in warned:
                warned.add(path)
                tell(f"{location}: warning: not read, although it may be a part of the conversation: {path}")
        yield location, outcome
    repeats.show_rest()


def _opened(files: Iterable[str], progress: Progress) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each file's name and lines; the events of a conversation of OpenHands together, one a line."""
    for folder, names in groupby(files, _folder_of_events):
        if folder is None:
            yield from opened(names, progress)
        else:
            events = (chain(lines, [b"\n"]) for _, lines in opened(sorted(names), progress))
            yield f"{folder}/event-*.json", chain.from_iterable(events)


def _folder_of_events(name: str) -> Path | None:
    path = Path(name)
    return path.parent if _EVENT.fullmatch(path.name) else None


class _Repeats:
    """The errors of a file, of which equal ones are printed once, and counted."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, str, int]] = {}  # first location, last location and number, by error

    def show(self, location: str, problem: str) -> None:
        first, _, count = self._seen.get(problem, (location, "", 0))
        if count == 0:
            tell(f"{location}: not converted: {problem}")
        if count or len(self._seen) < _MAX_PROBLEMS:
            self._seen[problem] = first, location, count + 1

    def show_rest(self) -> None:
        for first, last, count in self._seen.values():
            if count > 1:
                others = f", nor were {count - 2} before it" if count > 2 else ""
                tell(f"{last}: not converted{others}: the same as {first}")


def of_file(options: Options, name: str) -> Options:
    """Return the options with the file's time and path, for runs that do not tell their time or their id."""
    path = Path(name)
    if not path.is_file():
        return options
    modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return replace(options, recorded_at=modified, path=path.resolve().as_posix())
