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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, TypeVar

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from worker import __version__
from worker.dead_letters.arguments import Moment, Place, Source
from worker.errors import REASONS, RejectedRecord, WorkerError
from worker.logs import configure, errors_logged
from worker.settings import Settings, load_settings, override, render

Function = TypeVar("Function", bound=Callable[..., Any])

PROCESS = (sys.executable, "-m", "worker.cli", "work")
"""What `kp-worker run` keeps running."""

errors = Console(stderr=True, highlight=False, soft_wrap=True)


class _Group(click.Group):
    """Prints what a WorkerError says, instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WorkerError as error:
            told = click.ClickException(str(error))
            told.exit_code = error.exit_status
            raise told from error


def _config_option(function: Function) -> Function:
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="TOML file with the settings; KP_<SECTION>__<KEY> variables go over it.",
    )(function)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="knowledgepulse-worker")
def main() -> None:
    """Score AI agents' reasoning traces from Kafka, and route them by quality.

    New here? `kp-worker demo` shows it at work on real traces.
    """
    signal.signal(signal.SIGTERM, _exit_on_sigterm)


@main.command()
@_config_option
def run(config: Path | None) -> None:
    """Run a worker until SIGTERM or Ctrl-C.

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
@_config_option
@click.option("--heartbeat", type=int, required=True, help="A pipe to the parent process.")
def work(config: Path | None, heartbeat: int) -> None:
    """Be the process that `kp-worker run` watches."""
    settings = load_settings(config)
    configure(settings.log)
    from worker.stream.run import run_worker  # noqa: PLC0415 - the other commands need not wait for Faust

    status: Any = 0
    try:
        with errors_logged():
            run_worker(settings, config, heartbeat)
    except SystemExit as end:
        status = end.code
    # At once, whatever other threads do: an embedder that hangs would keep the process for ever.
    logging.shutdown()
    os._exit(status)


@main.command()
@_config_option
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
    size limit 1 MiB above raw's, so that a record fits with its score and headers.
    """
    asyncio.run(_topics(load_settings(config), partitions, replication_factor))


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@_config_option
@click.option(
    "--key",
    type=click.Choice(["id", "agent_id", "task_domain"]),
    default="id",
    show_default=True,
    help="What the records are keyed by: traces with the same key are compared with each other.",
)
def publish(files: tuple[BinaryIO, ...], config: Path | None, key: Any) -> None:
    """Publish FILES, one JSON trace a line, to the raw topic.

    Lines are sent as they are; what is no trace will be a dead letter. `-` reads standard input.
    """
    settings = load_settings(config)
    from worker.produce import publish_lines  # noqa: PLC0415 - the other commands need not wait for Kafka

    with _progress(DownloadColumn()) as progress:
        lines = (line.text for line in _lines(files, progress))
        published = asyncio.run(publish_lines(lines, settings, key))
    errors.print(f"{published.records} records published to {settings.topics.raw}")
    if published.without_key:
        errors.print(f"{published.without_key} of them have no {key}, and went without a key")


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@_config_option
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
    with _progress(DownloadColumn()) as progress:
        for line in _lines(files, progress):
            try:
                _echo(score_line(line.text, scorer, settings.limits.trace_bytes).to_json(), progress)
                scored += 1
            except RejectedRecord as error:
                bad += 1
                errors.print(f"{line.file}:{line.number}: {error.reason}: {error}", markup=False)
    if bad:
        errors.print(f"{bad} of {scored + bad} lines are no traces")
        sys.exit(1)


@main.command()
@_config_option
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
    with _counting() as progress:
        report = asyncio.run(run_audit(settings, embedder=embedder, progress=progress))
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        show(report, Console(highlight=False, soft_wrap=True))
    sys.exit(0 if report.ok else 1)


@main.command()
@_config_option
def config(config: Path | None) -> None:
    """Print the effective settings as TOML; secrets are masked."""
    click.echo(render(load_settings(config)), nl=False)


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
@_config_option
@_selection_options
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def list_dead_letters(config: Path | None, as_json: bool, **selection: Any) -> None:
    """List dead letters, a line each: where, when, why; nothing of their content.

    How many there are of each reason stands at the end, on standard error.
    """
    asyncio.run(_list_dead_letters(load_settings(config), selection, as_json))


@dead_letters.command("show")
@click.argument("place", type=Place())
@_config_option
@click.option("--raw", is_flag=True, help="Only the value, byte for byte.")
def show_dead_letter(place: tuple[int, int], config: Path | None, raw: bool) -> None:
    """Show all of one dead letter: headers, key and value.

    PLACE is the partition and offset that `list` shows. What is no character is escaped.
    """
    asyncio.run(_show_dead_letter(load_settings(config), place, raw))


@dead_letters.command("replay")
@_config_option
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


async def _topics(settings: Settings, partitions: int, replication_factor: int) -> None:
    from worker.stream.topics import TopicAdmin, differences  # noqa: PLC0415 - `--help` need not wait for Kafka

    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        created = await admin.create_missing(partitions, replication_factor)
        existing = await admin.existing()
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
    with _progress(MofNCompleteColumn()) as progress:
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


@contextmanager
def _progress(done: ProgressColumn) -> Iterator[Progress]:
    """Yield bars that tell how much is done, on standard error when that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        yield progress


def _echo(line: str, progress: Progress) -> None:
    """Print a line to standard output; above the bar, which it would else run into, on a terminal."""
    if errors.is_terminal and sys.stdout.isatty():
        progress.print(line, markup=False, emoji=False)
    else:
        click.echo(line)


def _counted(total: int, what: str, parts: Counter[str]) -> str:
    told = ", ".join(f"{count} {part}" for part, count in parts.most_common())
    return f"{total} {what}: {told}" if told else f"{total} {what}"


@contextmanager
def _counting() -> Iterator[Callable[[str, int, int], None]]:
    """Yield what is told how much of a topic was read; shown on standard error when that is a terminal."""
    with _progress(MofNCompleteColumn()) as progress:
        tasks: dict[str, TaskID] = {}

        def tell(topic: str, done: int, total: int) -> None:
            if topic not in tasks:
                tasks[topic] = progress.add_task(topic)
            progress.update(tasks[topic], completed=done, total=total)

        yield tell


@dataclass(frozen=True)
class _Line:
    file: str
    number: int
    text: bytes


def _lines(files: Iterable[BinaryIO], progress: Progress) -> Iterator[_Line]:
    """Yield the files' lines but empty ones."""
    for file in files:
        name = getattr(file, "name", "-")  # what stands in for standard input may have none
        task = progress.add_task(name, total=Path(name).stat().st_size if Path(name).is_file() else None)
        for number, text in enumerate(file, start=1):
            progress.advance(task, len(text))
            if text.strip():
                yield _Line(name, number, text)


def _exit_on_sigterm(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that everything that was opened is closed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
