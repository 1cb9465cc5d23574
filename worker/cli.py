"""``kp-worker``: parses, calls, prints."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from worker import __version__
from worker.errors import RejectedRecord, WorkerError
from worker.logs import configure
from worker.settings import Settings, load_settings, override, render

Function = TypeVar("Function", bound=Callable[..., Any])

errors = Console(stderr=True, highlight=False, soft_wrap=True)


class _Group(click.Group):
    """Prints what a WorkerError says, instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WorkerError as error:
            raise click.ClickException(str(error)) from error


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
    """
    settings = load_settings(config)
    configure(settings.log.level)
    from worker.stream.run import run_worker  # noqa: PLC0415 - the other commands need not wait for Faust

    run_worker(settings)


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

    with _reading(files) as lines:
        published = asyncio.run(publish_lines((line.text for line in lines), settings, key))
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
    with _reading(files) as lines:
        for line in lines:
            try:
                click.echo(score_line(line.text, scorer, settings.limits.trace_bytes).to_json())
                scored += 1
            except RejectedRecord as error:
                bad += 1
                errors.print(f"{line.file}:{line.number}: {error.reason}: {error}", markup=False)
    if bad:
        errors.print(f"{bad} of {scored + bad} lines are no traces")
        sys.exit(1)


@main.command()
@_config_option
def config(config: Path | None) -> None:
    """Print the effective settings as TOML; secrets are masked."""
    click.echo(render(load_settings(config)), nl=False)


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


@dataclass(frozen=True)
class _Line:
    file: str
    number: int
    text: bytes


@contextmanager
def _reading(files: Iterable[BinaryIO]) -> Iterator[Iterator[_Line]]:
    """Yield the files' lines but empty ones, with progress on standard error when that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        yield _lines(files, progress)


def _lines(files: Iterable[BinaryIO], progress: Progress) -> Iterator[_Line]:
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
