"""``kp-worker dead-letters``."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.progress import MofNCompleteColumn

from worker.commands.files import echo
from worker.dead_letters import text
from worker.dead_letters.arguments import Moment, Place, Source
from worker.dead_letters.letter import Selection
from worker.dead_letters.replay import replay
from worker.dead_letters.topic import open_dead_letters
from worker.errors import REASONS
from worker.options import Function, config_option
from worker.progress import errors, progress_bars
from worker.settings import Settings, load_settings


@click.group("dead-letters")
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


async def _list_dead_letters(settings: Settings, selection: dict[str, Any], as_json: bool) -> None:
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
    async with open_dead_letters(settings) as letters:
        record = await letters.at(*place)
    click.echo(record.value or b"" if raw else text.whole(record), nl=not raw)


async def _replay_dead_letters(
    settings: Settings, selection: dict[str, Any], max_attempts: int, dry_run: bool
) -> None:
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
                echo(text.outcome(outcome, dry_run=dry_run), progress)
    errors.print(f"{replayed} {'would be ' if dry_run else ''}replayed to {settings.topics.raw}")
    if stay:
        errors.print(_counted(stay.total(), "stay", stay))


def _counted(total: int, what: str, parts: Counter[str]) -> str:
    told = ", ".join(f"{count} {part}" for part, count in parts.most_common())
    return f"{total} {what}: {told}" if told else f"{total} {what}"
