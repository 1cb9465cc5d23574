"""``kp-worker``: parses, calls, prints."""

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
from worker.dead_letters.arguments import Moment, Place, Source
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
"""What `kp-worker run` keeps running."""


class _Group(click.Group):
    """Prints what a WorkerError says, instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WorkerError as error:
            told = click.ClickException(str(error))
            told.exit_code = error.exit_status
            raise told from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="knowledgepulse-worker")
def main() -> None:
    """Score AI agents' reasoning traces from Kafka, and route them by quality.

    New here? `kp-worker demo` shows it at work on real traces.
    """
    for number in stop_signals():
        signal.signal(number, _exit_on_signal)
    leave_out_attempts()


@main.command()
@config_option
def run(config: Path | None) -> None:
    """Run a worker until SIGTERM, SIGHUP or Ctrl-C.

    It then finishes what it sent, commits, and leaves its group. Start as many as the raw topic has
    partitions; Kafka shares them out.

    It waits for a broker that is away, and starts its process again when that ends or hangs. When it cannot
    start as it is configured, it ends with status 78.
    """
    settings = load_settings(config)
    configure(settings.log)
    from worker.supervise import Supervisor  # noqa: PLC0415 - the other commands need not wait for Kafka

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
@click.option("--socket", required=True, help="The Unix socket on which the parent process asks for pages.")
def work(config: Path | None, heartbeat: int, journal: int, socket: str) -> None:
    """Be the process that `kp-worker run` watches."""
    settings = load_settings(config)
    configure(settings.log)
    from worker.journal import Journal  # noqa: PLC0415 - nor for this
    from worker.stream.run import run_worker  # noqa: PLC0415 - the other commands need not wait for Faust

    status: Any = 0
    try:
        with errors_logged():
            run_worker(settings, config, heartbeat, Journal(journal), socket)
    except SystemExit as end:
        status = end.code
    # At once, whatever other threads do: an embedder that hangs would keep the process for ever.
    logging.shutdown()
    os._exit(status)


@main.command()
@config_option
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Partitions of a raw topic that is missing.",
)
@click.option(
    "--replication-factor",
    type=int,
    default=-1,
    help="Copies of topics that are missing.  [default: the broker's]",
)
def topics(config: Path | None, partitions: int, replication_factor: int) -> None:
    """Create the topics that are missing, and tell what differs.

    The outputs, the dead letters and the changelog get raw's partition count; outputs and dead letters a
    size limit 1 MiB above raw's, so that a record fits with its score and headers, and no limit of age: an
    output has the time of its record, and would be deleted at once where that is an old one.
    """
    asyncio.run(_topics(load_settings(config), partitions, replication_factor))


def _conversion_options(function: Function) -> Function:
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


@main.command("convert")
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@click.option(
    "--from",
    "source",
    type=click.Choice([AUTO, *SOURCES]),
    default=AUTO,
    show_default=True,
    help="The format of the files.",
)
@_conversion_options
def convert_command(files: tuple[BinaryIO, ...], source: str, **options: Any) -> None:
    """Convert FILES of other formats to traces, one JSON trace a line.

    A file is one JSON document, or one on each line; with `--from otlp`, also protobuf. What is no run of an
    agent is reported on standard error, and the exit status is then 1; what had no place in a trace is listed
    there too. `-` reads standard input.
    """
    report = _ConversionReport()
    with progress_bars(DownloadColumn()) as progress:
        for trace in _converted(files, source, report, progress, **options):
            _echo(trace.decode(), progress)
    report.show()
    sys.exit(1 if report.refused else 0)


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
    help="What the records are keyed by: traces with the same key are compared with each other.",
)
def publish(
    files: tuple[BinaryIO, ...], config: Path | None, key: Any, source: str | None, **options: Any
) -> None:
    """Publish FILES, one JSON trace a line, to the raw topic.

    Lines are sent as they are; what is no trace will be a dead letter. `-` reads standard input. With
    `--from`, the files are converted first, as `kp-worker convert` does it.
    """
    settings = load_settings(config)
    from worker.produce import publish_lines  # noqa: PLC0415 - the other commands need not wait for Kafka

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
        errors.print(f"{published.without_key} of them have no {key}, and went without a key")
    sys.exit(1 if report.refused else 0)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@config_option
@click.option(
    "--embedder",
    type=click.Choice(["none", "hashing", "sentence-transformers"]),
    help="Instead of embedding.backend.",
)
@click.option("--max-tokens", type=int, help="Instead of embedding.max_tokens.")
@click.option("--truncation", type=click.Choice(["standard", "sdk"]), help="Instead of embedding.truncation.")
def score(
    files: tuple[BinaryIO, ...],
    config: Path | None,
    embedder: str | None,
    max_tokens: int | None,
    truncation: str | None,
) -> None:
    """Score FILES, one JSON trace a line, without a broker.

    Prints one JSON line a trace, scored against the lines before it as one partition's stream would be. A
    line that is no trace is reported on standard error, and the exit status is then 1. `-` reads standard
    input.
    """
    over = {"backend": embedder, "max_tokens": max_tokens, "truncation": truncation}
    settings = load_settings(config)
    settings = override(
        settings, "embedding", {key: value for key, value in over.items() if value is not None}
    )
    from worker.embedding import load_embedder  # noqa: PLC0415 - `--help` need not wait for numpy
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
                told = printable(f"{line.file}:{line.number}: {error.reason}: {error}")
                errors.print(told, markup=False, emoji=False)
    if bad:
        errors.print(f"{bad} of {scored + bad} lines are no traces")
        sys.exit(1)


@main.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
def audit(config: Path | None, as_json: bool) -> None:
    """Check that nothing is missing and nothing differs.

    Reads raw, the outputs and the ledger's changelog up to where they end now; workers may run meanwhile.
    Every committed record must have an output, equal to the record but for the score, and to its repeats;
    score, novelty and route are computed again. Give it the worker's settings. The exit status is 1 when
    anything is missing or differs.
    """
    settings = load_settings(config)
    from worker.audit import audit as run_audit  # noqa: PLC0415 - the other commands need not wait for Kafka
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

    Comments name the secrets that are set, what is not set, and the weights in force for each domain.
    """
    click.echo(render(load_settings(config)), nl=False)


@main.command("licenses")
def list_licenses() -> None:
    """List the licences of what is installed here.

    Names every Python distribution with its version, the model's weights and the demo's traces: what an image
    of the worker redistributes, besides Python and the system.
    """
    rows = licenses()
    name, version = (max(len(getattr(row, column)) for row in rows) for column in ("name", "version"))
    for row in rows:
        click.echo(f"{row.name:{name}}  {row.version:{version}}  {row.license}")


@main.group("dead-letters")
def dead_letters() -> None:
    """List, show and replay what could not be scored."""


def _selection_options(function: Function) -> Function:
    options = (
        click.option(
            "--reason",
            "reasons",
            type=click.Choice(REASONS),
            multiple=True,
            help="Only for this reason; may be given several times.",
        ),
        click.option(
            "--since",
            type=Moment(),
            help="Only from this time on: 2026-01-31T12:00, in UTC unless it says, or an age such as 2h.",
        ),
        click.option("--until", type=Moment(), help="Only before this time. It is the raw record's own."),
        click.option("--source", type=Source(), help="Only what came from there."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@dead_letters.command("list")
@config_option
@_selection_options
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def list_dead_letters(config: Path | None, as_json: bool, **selection: Any) -> None:
    """List dead letters, a line each: where, when, why; nothing of their content.

    How many there are of each reason stands at the end, on standard error.
    """
    asyncio.run(_list_dead_letters(load_settings(config), selection, as_json))


@dead_letters.command("show")
@click.argument("place", type=Place())
@config_option
@click.option("--raw", is_flag=True, help="Only the value, byte for byte.")
def show_dead_letter(place: tuple[int, int], config: Path | None, raw: bool) -> None:
    """Show all of one dead letter: headers, key and value.

    PLACE is the partition and offset that `list` shows. What is no character is escaped.
    """
    asyncio.run(_show_dead_letter(load_settings(config), place, raw))


@dead_letters.command("replay")
@config_option
@_selection_options
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="What was replayed so often stays.",
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
def replay_dead_letters(config: Path | None, max_attempts: int, dry_run: bool, **selection: Any) -> None:
    """Publish dead letters to the raw topic again, each once.

    They keep their key, value, timestamp and headers, and the partition that they came from; `kp-attempt`
    counts. What cannot be replayed stays, and is told, as is what was replayed: a line each.
    """
    asyncio.run(_replay_dead_letters(load_settings(config), selection, max_attempts, dry_run))


@main.command()
@click.option("--stay/--no-stay", default=None, help="Stay up until Ctrl-C.  [default: on a terminal]")
def demo(stay: bool | None) -> None:
    """Show the worker on 154 real traces and a real broker.

    Finds a broker in this order: KAFKA_BOOTSTRAP_SERVERS, Docker, Java with Maven, the embedded noida-db. It
    makes topics of its own and leaves nothing behind.
    """
    from worker.demo.show import show  # noqa: PLC0415 - the other commands need not wait for it

    with suppress(KeyboardInterrupt):
        show(Console(), stay=sys.stdout.isatty() if stay is None else stay)


main.add_command(policy)
main.add_command(traces)


async def _topics(settings: Settings, partitions: int, replication_factor: int) -> None:
    from worker.kafka.rights import creation_rights, require_rights  # noqa: PLC0415 - `--help` need not wait
    from worker.kafka.topics import TopicAdmin, differences  # noqa: PLC0415 - for Kafka

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
    from worker.dead_letters import text  # noqa: PLC0415 - `--help` need not wait for Kafka
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
        errors.print(f"{letters.foreign} records of {settings.topics.dead_letter} were written by no worker")


async def _show_dead_letter(settings: Settings, place: tuple[int, int], raw: bool) -> None:
    from worker.dead_letters import text  # noqa: PLC0415 - `--help` need not wait for Kafka
    from worker.dead_letters.topic import open_dead_letters  # noqa: PLC0415

    async with open_dead_letters(settings) as letters:
        record = await letters.at(*place)
    click.echo(record.value or b"" if raw else text.whole(record), nl=not raw)


async def _replay_dead_letters(
    settings: Settings, selection: dict[str, Any], max_attempts: int, dry_run: bool
) -> None:
    from worker.dead_letters import text  # noqa: PLC0415 - `--help` need not wait for Kafka
    from worker.dead_letters.letter import Selection  # noqa: PLC0415
    from worker.dead_letters.replay import replay  # noqa: PLC0415

    stay: Counter[str] = Counter()
    replayed = 0
    with progress_bars(MofNCompleteColumn()) as progress:
        task = progress.add_task(settings.topics.dead_letter, total=None)

        def told(read: int, of: int) -> None:
            progress.update(task, completed=read, total=of)

        async for outcome in replay(
            settings, Selection(**selection), max_attempts, dry_run=dry_run, told=told
        ):
            if outcome.stays:
                stay[outcome.stays] += 1
            else:
                replayed += 1
            if outcome.stays != "replayed before":
                _echo(text.outcome(outcome, dry_run=dry_run), progress)
    errors.print(f"{replayed} {'would be ' if dry_run else ''}replayed to {settings.topics.raw}")
    if stay:
        errors.print(_counted(stay.total(), "stay", stay))


def _echo(line: str, progress: Progress) -> None:
    """Print a line to standard output; above the bar, which it would else run into, on a terminal."""
    if errors.is_terminal and sys.stdout.isatty():
        progress.print(line, markup=False, emoji=False)
    else:
        click.echo(line)


def _counted(total: int, what: str, parts: Counter[str]) -> str:
    told = ", ".join(f"{count} {part}" for part, count in parts.most_common())
    return f"{total} {what}: {told}" if told else f"{total} {what}"


@dataclass(frozen=True)
class _Line:
    file: str
    number: int
    text: bytes


def _lines(files: Iterable[BinaryIO], progress: Progress) -> Iterator[_Line]:
    """Yield the files' lines but empty ones."""
    for name, lines in _opened(files, progress):
        for number, text in enumerate(lines, start=1):
            if text.strip():
                yield _Line(name, number, text)


def _opened(files: Iterable[BinaryIO], progress: Progress) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each file's name and its lines, whose reading the bar follows."""
    for file in files:
        name = getattr(file, "name", "-")  # what stands in for standard input may have none
        task = progress.add_task(name, total=Path(name).stat().st_size if Path(name).is_file() else None)
        yield name, _followed(file, partial(progress.advance, task))


def _followed(lines: Iterable[bytes], advance: Callable[[float], None]) -> Iterator[bytes]:
    for line in lines:
        advance(len(line))
        yield line


@dataclass
class _ConversionReport:
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
    """Yield the files' traces as JSON, and report the rest."""
    from worker.convert.files import convert_lines, read_domains, read_labels  # noqa: PLC0415 - as above

    options = Options(
        domains={} if domain_map is None else read_domains(domain_map),
        labels={} if labels is None else read_labels(labels),
        visibility=visibility,
    )
    for name, lines in _opened(files, progress):
        for place, outcome in convert_lines(name, lines, source, options):
            if isinstance(outcome, ConversionError):
                report.refused += 1
                errors.print(f"{place}: not converted: {outcome}", markup=False)
                continue
            report.count(outcome)
            yield outcome.trace.to_json()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that everything that was opened is closed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
