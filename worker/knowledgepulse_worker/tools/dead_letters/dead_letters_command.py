"""``kp-worker dead-letters``."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import click

from knowledgepulse_schemas.dead_letter import FORMS, REASONS
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.settings import Settings, load_settings
from knowledgepulse_worker.terminal.command_group import CommandGroup
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.tools.dead_letters import letter_text as text
from knowledgepulse_worker.tools.dead_letters.dead_letter_topic import open_dead_letters
from knowledgepulse_worker.tools.dead_letters.letter import Selection
from knowledgepulse_worker.tools.dead_letters.replay import replay
from knowledgepulse_worker.tools.terminal.arguments import PartitionOffset, TopicPart
from knowledgepulse_worker.tools.terminal.console import RecordsColumn, errors, progress_bars
from knowledgepulse_worker.tools.terminal.files import echo
from knowledgepulse_worker.tools.terminal.options import json_lines_option, period_options, with_options


@click.group("dead-letters", cls=CommandGroup)
def dead_letters() -> None:
    """List, show and replay dead letters."""


_selection_options = with_options(
    click.option(
        "--reason",
        "reasons",
        type=click.Choice(REASONS),
        multiple=True,
        help="Select dead letters with this reason. Repeatable.",
    ),
    click.option(
        "--form",
        "forms",
        type=click.Choice(FORMS),
        multiple=True,
        metavar="FORM",
        help="Select dead letters whose value has this form, such as cloudevent. Repeatable.",
    ),
    period_options("Select dead letters"),
    click.option(
        "--source", type=TopicPart(), help="Select dead letters of this topic, partition or record."
    ),
)


@dead_letters.command("list")
@config_option
@_selection_options
@json_lines_option
def list_dead_letters(config: Path | None, as_json: bool, **selection: Any) -> None:
    """List dead letters, one per line, without their content.

    Prints the number of dead letters by reason, and by form, on standard error.
    """
    asyncio.run(_list_dead_letters(load_settings(config), selection, as_json))


@dead_letters.command("show")
@click.argument("location", type=PartitionOffset())
@config_option
@click.option("--raw", is_flag=True, help="Print only the value, byte for byte.")
def show_dead_letter(location: tuple[int, int], config: Path | None, raw: bool) -> None:
    """Show the headers, key and value of a dead letter.

    LOCATION is its partition and offset, as shown by `list`. Unprintable characters are escaped.
    """
    asyncio.run(_show_dead_letter(load_settings(config), location, raw))


@dead_letters.command("replay")
@config_option
@_selection_options
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1),
    default=3,
    help="Skip dead letters that were already replayed this many times.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be replayed, and publish nothing.")
def replay_dead_letters(config: Path | None, max_attempts: int, dry_run: bool, **selection: Any) -> None:
    """Publish dead letters to the raw topic again, each exactly once.

    A replayed record keeps its key, value, headers and partition. Its timestamp is the time of the replay,
    and the header `kp-attempt` counts the replays. Prints one line for each dead letter, replayed or skipped.
    """
    asyncio.run(_replay_dead_letters(load_settings(config), selection, max_attempts, dry_run))


async def _list_dead_letters(settings: Settings, selection: dict[str, Any], as_json: bool) -> None:
    reasons, forms = Counter[str](), Counter[str]()
    async with open_dead_letters(settings) as letters:
        replayed = await letters.replayed()
        if not as_json:
            click.echo(text.HEAD)
        async for letter in letters.select(Selection(**selection)):
            reasons[letter.headers.reason] += 1
            if letter.headers.form is not None:
                forms[letter.headers.form] += 1
            to = replayed.get(letter.identity)
            click.echo(text.as_json(letter, to) if as_json else text.row(letter, to))
    errors.print(_by_kind(counted(reasons.total(), "dead letter"), reasons))
    if forms:
        errors.print(_by_kind("their values", forms))
    if letters.foreign:
        name = settings.topics.dead_letter
        errors.print(f"skipped {counted(letters.foreign, 'record')} of {name}, which no worker wrote")


async def _show_dead_letter(settings: Settings, location: tuple[int, int], raw: bool) -> None:
    async with open_dead_letters(settings) as letters:
        record = await letters.record_at(*location)
    click.echo(record.value or b"" if raw else text.details(record), nl=not raw)


async def _replay_dead_letters(
    settings: Settings, selection: dict[str, Any], max_attempts: int, dry_run: bool
) -> None:
    skipped: Counter[str] = Counter()
    replayed = 0
    with progress_bars(RecordsColumn()) as bars:
        task = bars.add_task(settings.topics.dead_letter, total=None)

        def progress(read: int, total: int) -> None:
            bars.update(task, completed=read, total=total)

        async for result in replay(
            settings, Selection(**selection), max_attempts, dry_run=dry_run, progress=progress
        ):
            if result.skipped:
                skipped[result.skipped] += 1
            else:
                replayed += 1
            if result.skipped != "replayed before":
                echo(text.replay_line(result, dry_run=dry_run), bars)
    errors.print(f"{replayed:,} {'would be ' if dry_run else ''}replayed to {settings.topics.raw}")
    if skipped:
        errors.print(_by_kind(f"{skipped.total():,} skipped", skipped))


def _by_kind(total: str, parts: Counter[str]) -> str:
    details = ", ".join(f"{count:,} {part}" for part, count in parts.most_common())
    return f"{total}: {details}" if details else total
