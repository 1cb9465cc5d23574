"""The commands ``kp-worker traces``."""

from __future__ import annotations

import asyncio
import heapq
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.policy import Policy, by_digest, is_digest_of
from knowledgepulse_worker.process.signals import until_stopped
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.terminal.command_group import CommandGroup
from knowledgepulse_worker.terminal.printable import time_text
from knowledgepulse_worker.tools.common.scored_records import is_named, members_of
from knowledgepulse_worker.tools.policies.command_inputs import Inputs, policy_option, source_options
from knowledgepulse_worker.tools.terminal.arguments import SCORE
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.options import json_lines_option
from knowledgepulse_worker.tools.terminal.reports import print_parts
from knowledgepulse_worker.tools.traces import listing

if TYPE_CHECKING:
    from knowledgepulse_worker.scoring import ScoredRecord

_SUFFIXES = {".json", ".jsonl"}
"""Suffixes by which a name is known as that of a file, and not of a trace."""


@click.group(cls=CommandGroup)
def traces() -> None:
    """List scored traces, and explain the score of one."""


@traces.command("list")
@source_options
@click.option("--domain", help="List only traces of this domain or task domain.")
@click.option("--min", "least", type=SCORE, default=0.0, help="Lowest score to list.")
@click.option("--max", "most", type=SCORE, default=1.0, help="Highest score to list.")
@click.option(
    "--near",
    type=click.IntRange(min=1),
    help="List only this number of traces: those whose scores are nearest to their threshold, nearest first.",
)
@click.option(
    "--wait",
    type=click.IntRange(1, 86_400),
    metavar="SECONDS",
    help="Look again each second, for so long, until there are such traces and no more arrive.",
)
@click.option("--follow", is_flag=True, help="Go on with the traces that arrive, until Ctrl-C.")
@json_lines_option
def list_traces(
    domain: str | None,
    least: float,
    most: float,
    near: int | None,
    wait: int | None,
    follow: bool,
    as_json: bool,
    given: Inputs,
) -> None:
    """List scored traces, one per line.

    A terminal of less than 160 columns shows no times and ids; a trace's source names it too.

    Reads scored traces from the workers' topics, or from FILES. FILES contain the output of
    `kp-worker score`, or raw traces, which are scored first. The commands `kp-worker policy` read the lines
    of `--json`: so `kp-worker policy label` shows only the traces of a band, or those near the threshold. If
    no trace matches, the exit status is 1.
    """
    if least > most:
        raise click.UsageError(f"--min {least:g} is above --max {most:g}, so no score can match")
    if wait and given.files:
        raise click.UsageError("--wait applies only to topics: files do not change")
    if follow and (given.files or near or wait):
        raise click.UsageError("--follow applies only to topics, without --near and --wait")

    def is_listed(record: ScoredRecord) -> bool:
        of_domain = domain in (None, record.task_domain, record.score.domain)
        return of_domain and least <= record.score.quality_score <= most

    if follow:
        _follow(given, is_listed, as_json=as_json)
        return
    listed = _listed(given, is_listed, time.monotonic() + (wait or 0))
    if near is not None:
        # With a share, the threshold is the lowest score that passed then.
        listed = heapq.nsmallest(
            near, listed, key=lambda record: abs(record.score.quality_score - record.score.threshold)
        )
    if as_json:
        for record in listed:
            click.echo(_line(record))
    elif sys.stdout.isatty():
        print_parts(*listing.fitted(listed, get_terminal_size().columns))
    else:
        print_parts(*listing.lines(listed))
    errors.print(counted(len(listed), "trace"))


def _follow(given: Inputs, is_listed: Callable[[ScoredRecord], bool], *, as_json: bool) -> None:
    """Print traces, and those that arrive, until a signal asks for the end."""
    from knowledgepulse_worker.tools.policies.scored_topics import follow_scored_topics  # noqa: PLC0415 - keeps `--help` fast

    line = listing.followed(get_terminal_size().columns if sys.stdout.isatty() else None)

    def show(record: ScoredRecord) -> None:
        if is_listed(record):
            click.echo(_line(record) if as_json else line(record))

    if not as_json:
        click.echo(line(None))
    asyncio.run(until_stopped(partial(follow_scored_topics, given.settings, given.period, show)))


def _listed(given: Inputs, is_listed: Callable[[ScoredRecord], bool], deadline: float) -> list[ScoredRecord]:
    """Return the traces to list, one or more; until a deadline, look again until no more arrive.

    The first look that finds some may come between the commits of two partitions.

    Raises:
        InputError: there are none; the message says what there is.
    """
    found = 0
    while True:
        is_last = time.monotonic() >= deadline
        try:
            records = given.records()
        except InputError:  # there are no traces at all
            if is_last:
                raise
        else:
            listed = [record for record in records if is_listed(record)]
            if listed and (is_last or len(listed) == found):
                return listed
            if is_last:
                raise InputError(_none_of(records))
            found = len(listed)
        time.sleep(1)


def _none_of(records: Collection[ScoredRecord]) -> str:
    if not records:
        return "there are no traces"
    scores = [record.score.quality_score for record in records]
    domains = sorted({record.score.domain for record in records})
    return (
        f"none of {counted(len(records), 'trace')} matches: their scores are {min(scores):.4f} to "
        f"{max(scores):.4f}, their domains {printable(', '.join(domains))}"
    )


def _line(record: ScoredRecord) -> str:
    """Format a trace as a line of ASCII JSON, with what the output of `kp-worker score` has."""
    place = {"source": record.source, "timestamp_ms": record.timestamp_ms, "policy": record.policy}
    return json.dumps(place | members_of(record))


@traces.command("show")
@click.argument("name")
@source_options
@policy_option
def show_trace(name: str, given: Inputs) -> None:
    """Explain the score of a trace.

    NAME is the trace's id, also that of its redacted copy, its run's native id, the topic/partition/offset of
    its raw or scored record, or its file:line. With file:line, FILES are not needed.

    Shows the objective, the steps and the result, all shortened; the points of each dimension, the overrides
    and the threshold; the nearest earlier trace; and the changes that would have made the trace pass. A trace
    from a topic is explained by the policy that scored it, and a trace from a file by the settings' policy,
    unless --policy names another one. A scored trace is then shown with the score that this policy would give
    it; raw traces in FILES are scored under it.
    """
    from knowledgepulse_worker.tools.traces.explain_trace import explain  # noqa: PLC0415 - keeps `--help` fast

    name, given = _with_its_file(name, given)
    active = given.policy
    if given.files:
        records = _matching(given.records_of_files(active), name)
    else:
        records = asyncio.run(_find(given.settings, name))
    if not records:
        raise InputError(f"no scored trace matches '{name}'{_place(name, given.files)}")
    policies = {} if given.policy_file else asyncio.run(_policies(given.settings, records))
    for number, record in enumerate(records):
        policy = policies.get(record.policy or "", active)
        explained = explain(record, policy, otherwise=bool(given.policy_file))
        print_parts(*([""] if number else []), *explained)
    if not given.files:
        print_parts(*asyncio.run(_contributions(given.settings, records)))


def _matching(records: Iterable[ScoredRecord], name: str) -> list[ScoredRecord]:
    """Return the traces with a name; a line that is named is the last one to be read."""
    matching = []
    for record in records:
        if record.source == name:
            return [record]
        if is_named(record, name):
            matching.append(record)
    return matching


def _with_its_file(name: str, given: Inputs) -> tuple[str, Inputs]:
    """Return a trace's name and the inputs, with the file that a name such as ``file:line`` begins with."""
    file, _, line = name.rpartition(":")
    if given.files:
        return name, given
    if Path(name).is_file():
        raise click.UsageError(f"'{name}' is a file; name one of its lines, such as {name}:1")
    if Path(file).is_file() and not line.isdecimal():
        raise click.UsageError(f"'{name}' names no line of '{file}'; lines are named such as {file}:1")
    if not Path(file).is_file():
        if Path(file).suffix in _SUFFIXES:
            raise click.UsageError(f"file '{file}' does not exist")
        return name, given
    return f"{Path(file)}:{line}", replace(given, files=(Path(file),))


def _place(name: str, files: Sequence[Path]) -> str:
    """Return how many lines the file has that a name such as ``file:line`` begins with."""
    for file in files:
        if name.startswith(f"{file}:"):
            with file.open("rb") as lines:
                count = counted(sum(1 for _ in lines), "line")
            return f": {file} has {count}, from {file}:1 on"
    return ""


async def _find(settings: Settings, name: str) -> list[ScoredRecord]:
    from knowledgepulse_worker.tools.policies.scored_topics import open_scored_topics  # noqa: PLC0415 - files need no Kafka

    async with open_scored_topics(settings) as topics:
        return await topics.find(name)


async def _contributions(settings: Settings, records: Collection[ScoredRecord]) -> list[str]:
    """Return a line for each attempt to send the traces to a registry."""
    from knowledgepulse_worker.tools.common.registry_results import (  # noqa: PLC0415 - files need no Kafka
        read_contributions,
    )

    results = await read_contributions(settings, records)
    return [""] * bool(results) + [
        f"{time_text(result.at)}: {result.result} {printable(result.trace_id)} "
        f"at {printable(result.registry)}" + (f": {printable(result.message)}" if result.message else "")
        for result in results
    ]


async def _policies(settings: Settings, records: Iterable[ScoredRecord]) -> dict[str, Policy]:
    """Return the policies that the workers kept, by digest; empty if the settings' policy suffices."""
    from knowledgepulse_worker.tools.policies.scored_topics import policy_history  # noqa: PLC0415 - files need no Kafka

    if all(record.policy is None or is_digest_of(settings.policy, record.policy) for record in records):
        return {}
    try:
        return by_digest(kept.policy for kept in await policy_history(settings))
    except (TopicError, InputError):  # of an earlier release, which kept none
        return {}
