"""The ``kp-worker`` command."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import click
from rich.console import Console
from rich.progress import DownloadColumn, MofNCompleteColumn, Progress

from schemas.convert import AUTO, SOURCES, Conversion, ConversionError, Losses, Options
from worker import __version__
from worker.dead_letters.arguments import Moment, Position, Source
from worker.errors import REASONS, RejectedRecord, WorkerError
from worker.licenses import licenses
from worker.logs import configure, errors_logged, leave_out_attempts
from worker.options import Function, config_option
from worker.policies.commands import policy, traces
from worker.progress import counting, errors, progress_bars
from worker.settings import Settings, load_settings, override, render
from worker.signals import stop_signals
from worker.terminal import printable

PROCESS = (sys.executable, "-m", "worker.cli", "work")
"""The child process of `kp-worker run`."""


class _Group(click.Group):
    """Print the message of a WorkerError instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WorkerError as error:
            exception = click.ClickException(str(error))
            exception.exit_code = error.exit_status
            raise exception from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="knowledgepulse-worker")
def main() -> None:
    """Score AI agents' reasoning traces from Kafka and route them by quality.

    New here? Try `kp-worker demo`.
    """
    for number in stop_signals():
        signal.signal(number, _exit_on_signal)
    leave_out_attempts()


@main.command()
@config_option
def run(config: Path | None) -> None:
    """Run a worker until SIGTERM, SIGHUP or Ctrl-C.

    On a signal, it completes the records in flight, commits, and leaves its group. Run up to as many workers
    as the raw topic has partitions; Kafka assigns the partitions.

    It waits for unreachable brokers, and restarts its child process when that exits or hangs. It exits with
    status 78 if the configuration is invalid.
    """
    settings = load_settings(config)
    configure(settings.log)
    from worker.supervise import Supervisor  # noqa: PLC0415 - imports Kafka, which other commands don't need

    command = [*PROCESS, *(() if config is None else ("--config", str(config)))]

    async def supervise() -> int:
        return await Supervisor(settings, command).run()

    with errors_logged():
        status = asyncio.run(supervise())
    sys.exit(status)


@main.command(hidden=True)
@config_option
@click.option("--heartbeat", type=int, required=True, help="A pipe to the parent process.")
@click.option("--journal", type=int, required=True, help="Memory shared with the parent process.")
def work(config: Path | None, heartbeat: int, journal: int) -> None:
    """Run as the child process of `kp-worker run`."""
    settings = load_settings(config)
    configure(settings.log)
    from worker.journal import Journal  # noqa: PLC0415 - only this command needs it
    from worker.stream.run import run_worker  # noqa: PLC0415 - imports Faust, which other commands don't need

    status: Any = 0
    try:
        with errors_logged():
            run_worker(settings, config, heartbeat, Journal(journal))
    except SystemExit as end:
        status = end.code
    # Exit without waiting for other threads: a hung embedder would keep the process alive forever.
    logging.shutdown()
    os._exit(status)


@main.command()
@config_option
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Partition count of a new raw topic.",
)
@click.option(
    "--replication-factor",
    type=int,
    default=-1,
    help="Replication factor of new topics.  [default: the broker's]",
)
def topics(config: Path | None, partitions: int, replication_factor: int) -> None:
    """Create missing topics, and report existing ones with other settings.

    The output, dead-letter and changelog topics get the raw topic's partition count. The output and
    dead-letter topics get a size limit 1 MiB above the raw topic's, so that a record fits with its score and
    headers, and unlimited retention: outputs have the timestamps of their records, and those of old records
    would otherwise be deleted at once.
    """
    asyncio.run(_topics(load_settings(config), partitions, replication_factor))


def _conversion_options(function: Function) -> Function:
    options = (
        click.option(
            "--domain-map",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="TOML file of task domains by agent, service or project.",
        ),
        click.option(
            "--labels",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="File of labels, one JSON object per line: id of a run or trace, success, confidence.",
        ),
        click.option(
            "--visibility",
            type=click.Choice(["private", "org", "network"]),
            default="private",
            show_default=True,
            help="Visibility of the traces.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@main.command("convert")
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@click.option(
    "--from",
    "source",
    type=click.Choice([AUTO, *SOURCES]),
    default=AUTO,
    show_default=True,
    help="Format of the files.",
)
@_conversion_options
def convert_command(files: tuple[BinaryIO, ...], source: str, **options: Any) -> None:
    """Convert FILES from other formats to traces, one JSON object per line.

    A file contains one JSON document, or one per line; with `--from otlp`, also protobuf. Reports on standard
    error what is not an agent run, and then exits with status 1; also reports the values that traces have no
    field for. `-` reads standard input.
    """
    report = _ConversionReport()
    with progress_bars(DownloadColumn()) as progress:
        for trace in _converted(files, source, report, progress, **options):
            _echo(trace.decode(), progress)
    report.show()
    sys.exit(1 if report.failed else 0)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@config_option
@click.option(
    "--from", "source", type=click.Choice([AUTO, *SOURCES]), help="Convert the files from this format first."
)
@_conversion_options
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
    from worker.produce import publish_lines  # noqa: PLC0415 - imports Kafka, which other commands don't need

    report = _ConversionReport()
    with progress_bars(DownloadColumn()) as progress:
        if source is None:
            lines: Iterator[bytes] = (line.text for line in _lines(files, progress))
        else:
            lines = _converted(files, source, report, progress, **options)
        published = asyncio.run(publish_lines(lines, settings, key))
    if source is not None:
        report.show()
    errors.print(f"{published.records} records published to {settings.topics.raw}")
    if published.without_key:
        errors.print(f"{published.without_key} of them have no {key} and were published without a key")
    sys.exit(1 if report.failed else 0)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@config_option
@click.option(
    "--embedder",
    type=click.Choice(["none", "hashing", "sentence-transformers"]),
    help="Overrides embedding.backend.",
)
@click.option("--max-tokens", type=int, help="Overrides embedding.max_tokens.")
@click.option("--truncation", type=click.Choice(["standard", "sdk"]), help="Overrides embedding.truncation.")
def score(
    files: tuple[BinaryIO, ...],
    config: Path | None,
    embedder: str | None,
    max_tokens: int | None,
    truncation: str | None,
) -> None:
    """Score FILES, one JSON trace per line, without a broker.

    Prints one JSON object per trace. Traces are scored in order, as in one partition. Reports invalid lines
    on standard error, and then exits with status 1. `-` reads standard input.
    """
    over = {"backend": embedder, "max_tokens": max_tokens, "truncation": truncation}
    settings = load_settings(config)
    settings = override(
        settings, "embedding", {key: value for key, value in over.items() if value is not None}
    )
    from worker.embedding import load_embedder  # noqa: PLC0415 - keeps `--help` fast
    from worker.offline import make_scorer, score_line  # noqa: PLC0415

    scorer = make_scorer(settings, load_embedder(settings.embedding, settings.cache))
    scored = bad = 0
    with progress_bars(DownloadColumn()) as progress:
        for line in _lines(files, progress):
            try:
                _echo(score_line(line.text, scorer, settings.limits.trace_bytes).to_json(), progress)
                scored += 1
            except RejectedRecord as error:
                bad += 1
                message = printable(f"{line.file}:{line.number}: {error.reason}: {error}")
                errors.print(message, markup=False, emoji=False)
    if bad:
        errors.print(f"{bad} of {scored + bad} lines are invalid")
        sys.exit(1)


@main.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
def audit(config: Path | None, as_json: bool) -> None:
    """Audit the outputs: nothing may be missing, nothing may differ.

    Reads the raw topic, the outputs and the ledger's changelog up to their current ends; workers may be
    running. Every committed record must have an output that equals the record except for the score, and all
    repeats must be equal. Scores, novelty and decisions are recomputed. Use the worker's settings. Exits with
    status 1 if anything is missing or differs.
    """
    settings = load_settings(config)
    from worker.audit import audit as run_audit  # noqa: PLC0415 - imports Kafka
    from worker.audit.show import show  # noqa: PLC0415
    from worker.embedding import load_embedder  # noqa: PLC0415

    embedder = partial(load_embedder, settings.embedding, settings.cache)
    with counting() as progress:
        report = asyncio.run(run_audit(settings, embedder=embedder, progress=progress))
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        show(report, Console(highlight=False, soft_wrap=True))
    sys.exit(0 if report.ok else 1)


@main.command()
@config_option
def config(config: Path | None) -> None:
    """Print the effective settings as TOML, without secrets.

    Comments list the secrets that are set, the settings that are not, and the effective weights by domain.
    """
    click.echo(render(load_settings(config)), nl=False)


@main.command("licenses")
def list_licenses() -> None:
    """List the licences of this installation.

    Lists all Python distributions with their versions, the model's weights and the demo's traces: everything
    that an image of the worker redistributes besides Python and the operating system.
    """
    rows = licenses()
    name, version = (max(len(getattr(row, column)) for row in rows) for column in ("name", "version"))
    for row in rows:
        click.echo(f"{row.name:{name}}  {row.version:{version}}  {row.license}")


@main.group("dead-letters")
def dead_letters() -> None:
    """List, show and replay dead letters."""


def _selection_options(function: Function) -> Function:
    options = (
        click.option(
            "--reason",
            "reasons",
            type=click.Choice(REASONS),
            multiple=True,
            help="Select dead letters with this reason. Repeatable.",
        ),
        click.option(
            "--since",
            type=Moment(),
            help="Select dead letters from this time on: 2026-01-31T12:00, in UTC by default, or an age such "
            "as 2h. A dead letter's time is that of its raw record.",
        ),
        click.option("--until", type=Moment(), help="Select dead letters before this time."),
        click.option("--source", type=Source(), help="Select dead letters from this part of the raw topic."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@dead_letters.command("list")
@config_option
@_selection_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_dead_letters(config: Path | None, as_json: bool, **selection: Any) -> None:
    """List dead letters, one per line, without their content.

    Prints the number of dead letters by reason on standard error.
    """
    asyncio.run(_list_dead_letters(load_settings(config), selection, as_json))


@dead_letters.command("show")
@click.argument("position", type=Position())
@config_option
@click.option("--raw", is_flag=True, help="Print only the value, byte for byte.")
def show_dead_letter(position: tuple[int, int], config: Path | None, raw: bool) -> None:
    """Show the headers, key and value of a dead letter.

    POSITION is its partition and offset, as shown by `list`. Unprintable characters are escaped.
    """
    asyncio.run(_show_dead_letter(load_settings(config), position, raw))


@dead_letters.command("replay")
@config_option
@_selection_options
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Skip dead letters already replayed this many times.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be replayed, and publish nothing.")
def replay_dead_letters(config: Path | None, max_attempts: int, dry_run: bool, **selection: Any) -> None:
    """Publish dead letters to the raw topic again, each exactly once.

    A record keeps its key, value, headers and partition; its timestamp is the time of the replay, and
    `kp-attempt` counts the replays. Prints one line per dead letter, replayed or skipped.
    """
    asyncio.run(_replay_dead_letters(load_settings(config), selection, max_attempts, dry_run))


@main.command()
@click.option(
    "--stay/--no-stay",
    default=None,
    help="Keep the worker running until Ctrl-C.  [default: if on a terminal]",
)
def demo(stay: bool | None) -> None:
    """Demonstrate the worker on 154 real traces and a real broker.

    Uses the first available broker of: KAFKA_BOOTSTRAP_SERVERS, Docker, Java with Maven, the embedded
    noida-db. Uses temporary topics and cleans up afterwards.
    """
    from worker.demo.show import show  # noqa: PLC0415 - keeps other commands fast

    with suppress(KeyboardInterrupt):
        show(Console(), stay=sys.stdout.isatty() if stay is None else stay)


main.add_command(policy)
main.add_command(traces)


async def _topics(settings: Settings, partitions: int, replication_factor: int) -> None:
    from worker.kafka.rights import creation_rights, require_rights  # noqa: PLC0415 - keeps `--help` fast
    from worker.kafka.topics import TopicAdmin, differences  # noqa: PLC0415

    await require_rights(settings.kafka, creation_rights(settings))
    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        created = await admin.create_missing(partitions, replication_factor)
        existing = await admin.existing() | created
    for topic in existing.values():
        state = "created" if topic.name in created else "exists"
        limit = f"max.message.bytes={topic.max_message_bytes}"
        click.echo(f"{topic.name}: {state}, {topic.partitions} partitions, {limit}")
    for difference in differences(existing, settings.topics):
        errors.print(f"differs: {difference}")


async def _list_dead_letters(settings: Settings, selection: dict[str, Any], as_json: bool) -> None:
    from worker.dead_letters import text  # noqa: PLC0415 - keeps `--help` fast
    from worker.dead_letters.letter import Selection  # noqa: PLC0415
    from worker.dead_letters.topic import open_dead_letters  # noqa: PLC0415

    reasons: Counter[str] = Counter()
    async with open_dead_letters(settings) as letters:
        replayed = await letters.replayed()
        if not as_json:
            click.echo(text.HEAD)
        async for letter in letters.select(Selection(**selection)):
            reasons[letter.headers.reason] += 1
            to = replayed.get(letter.identity)
            click.echo(text.as_json(letter, to) if as_json else text.row(letter, to))
    errors.print(_counted(reasons.total(), "dead letters", reasons))
    if letters.foreign:
        name = settings.topics.dead_letter
        errors.print(f"skipped {letters.foreign} records of {name} that were not written by a worker")


async def _show_dead_letter(settings: Settings, position: tuple[int, int], raw: bool) -> None:
    from worker.dead_letters import text  # noqa: PLC0415 - keeps `--help` fast
    from worker.dead_letters.topic import open_dead_letters  # noqa: PLC0415

    async with open_dead_letters(settings) as letters:
        record = await letters.at(*position)
    click.echo(record.value or b"" if raw else text.details(record), nl=not raw)


async def _replay_dead_letters(
    settings: Settings, selection: dict[str, Any], max_attempts: int, dry_run: bool
) -> None:
    from worker.dead_letters import text  # noqa: PLC0415 - keeps `--help` fast
    from worker.dead_letters.letter import Selection  # noqa: PLC0415
    from worker.dead_letters.replay import replay  # noqa: PLC0415

    skipped: Counter[str] = Counter()
    replayed = 0
    with progress_bars(MofNCompleteColumn()) as bars:
        task = bars.add_task(settings.topics.dead_letter, total=None)

        def progress(read: int, total: int) -> None:
            bars.update(task, completed=read, total=total)

        async for outcome in replay(
            settings, Selection(**selection), max_attempts, dry_run=dry_run, progress=progress
        ):
            if outcome.skipped:
                skipped[outcome.skipped] += 1
            else:
                replayed += 1
            if outcome.skipped != "replayed before":
                _echo(text.outcome(outcome, dry_run=dry_run), bars)
    errors.print(f"{replayed} {'would be ' if dry_run else ''}replayed to {settings.topics.raw}")
    if skipped:
        errors.print(_counted(skipped.total(), "skipped", skipped))


def _echo(line: str, progress: Progress) -> None:
    """Print a line to standard output; on a terminal, above the progress bar."""
    if errors.is_terminal and sys.stdout.isatty():
        progress.print(line, markup=False, emoji=False)
    else:
        click.echo(line)


def _counted(total: int, what: str, parts: Counter[str]) -> str:
    details = ", ".join(f"{count} {part}" for part, count in parts.most_common())
    return f"{total} {what}: {details}" if details else f"{total} {what}"


@dataclass(frozen=True)
class _Line:
    file: str
    number: int
    text: bytes


def _lines(files: Iterable[BinaryIO], progress: Progress) -> Iterator[_Line]:
    """Yield the non-empty lines of files."""
    for name, lines in _opened(files, progress):
        for number, text in enumerate(lines, start=1):
            if text.strip():
                yield _Line(name, number, text)


def _opened(files: Iterable[BinaryIO], progress: Progress) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each file's name and lines, and advance the progress bar."""
    for file in files:
        name = getattr(file, "name", "-")  # a replaced standard input may have no name
        task = progress.add_task(name, total=Path(name).stat().st_size if Path(name).is_file() else None)
        yield name, _with_progress(file, partial(progress.advance, task))


def _with_progress(lines: Iterable[bytes], advance: Callable[[float], None]) -> Iterator[bytes]:
    for line in lines:
        advance(len(line))
        yield line


@dataclass
class _ConversionReport:
    """Totals of a conversion."""

    traces: int = 0
    labelled: int = 0
    failed: int = 0
    losses: Losses = field(default_factory=Losses)

    def count(self, conversion: Conversion) -> None:
        """Count a converted trace."""
        metadata = conversion.trace.metadata.model_extra or {}
        self.traces += 1
        self.labelled += "label" in {metadata.get("outcome_source"), metadata.get("confidence_source")}
        self.losses.merge(conversion.losses)

    def show(self) -> None:
        """Print the totals on standard error, largest losses first."""
        errors.print(f"{self.traces} traces, {self.labelled} with a label; {self.failed} not converted")
        if self.losses:
            errors.print("not in the traces:")
        for path, loss in sorted(self.losses.items(), key=lambda one: (-one[1].characters, one[0])):
            line = f"  {path}: {loss.values} values, {loss.characters} characters"
            errors.print(line, markup=False)


def _converted(
    files: Iterable[BinaryIO],
    source: str,
    report: _ConversionReport,
    progress: Progress,
    *,
    domain_map: Path | None,
    labels: Path | None,
    visibility: Any,
) -> Iterator[bytes]:
    """Yield the traces of files as JSON, and report what was not converted."""
    from worker.convert.files import convert_lines, read_domains, read_labels  # noqa: PLC0415 - as above

    options = Options(
        domains={} if domain_map is None else read_domains(domain_map),
        labels={} if labels is None else read_labels(labels),
        visibility=visibility,
    )
    for name, lines in _opened(files, progress):
        for place, outcome in convert_lines(name, lines, source, options):
            if isinstance(outcome, ConversionError):
                report.failed += 1
                errors.print(f"{place}: not converted: {outcome}", markup=False)
                continue
            report.count(outcome)
            yield outcome.trace.to_json()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    """Exit in the same way as on Ctrl-C, so that resources are closed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
