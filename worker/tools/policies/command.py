"""The commands ``kp-worker policy`` and ``kp-worker traces``."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from rich.console import Console
from rich.table import Table

from worker.errors import InputError, TopicError
from worker.policy import Policy
from worker.settings import Settings, load_policy, load_settings, override
from worker.terminal.arguments import Moment
from worker.terminal.options import Function, config_option
from worker.terminal.progress import errors, topic_progress
from worker.terminal.text import time_text
from worker.tools.policies.changes import changes, suspicions

if TYPE_CHECKING:
    from worker.kafka.policy_topic import KeptPolicy
    from worker.scoring import ScoredRecord, Scorer
    from worker.tools.policies.labels import Labels
    from worker.tools.policies.scored_topics import ScoredTopics

_UNLIMITED = 10_000
"""Width of tables that are written to a file or a pipe: enough for all columns."""

_PolicyFile = click.Path(exists=True, dir_okay=False, path_type=Path)

_PLOT_SUFFIXES = (".png", ".svg")


class _NewFile(click.Path):
    """A file to write, in a folder that exists: known before minutes are spent on its content."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        path = cast("Path", super().convert(value, param, ctx))
        if self._suffixes and path.suffix.lower() not in self._suffixes:
            raise InputError(f"{path}: the suffix of a plot must be one of {', '.join(self._suffixes)}")
        if not path.parent.is_dir():
            raise InputError(f"{path}: cannot be written: {os.strerror(errno.ENOENT)}")
        return path


def _require_no_input(output: Path, inputs: Iterable[Path | None]) -> None:
    """Raise an InputError if writing a file would overwrite what the command reads."""
    if output.exists() and any(one is not None and one.exists() and one.samefile(output) for one in inputs):
        raise InputError(f"{output}: is read by this command; write to another file")


class _Number(click.FloatRange):
    """A number in a range; NaN, which compares to nothing, is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            above = "<" if self.min_open else "<="
            accepted = "a number" if self.min is None else f"in the range {self.min:g}{above}x<={self.max:g}"
            self.fail(f"{value} is not {accepted}.", param, ctx)
        return number


_SHARE = _Number(0, 1, min_open=True)
_SCORE = _Number(0, 1)

_policy_option = click.option(
    "--policy", "file", type=_PolicyFile, help="Policy file to use instead of the settings' policy."
)
_plot_option = click.option(
    "--plot", type=_NewFile(*_PLOT_SUFFIXES), help="Write a plot to this .png or .svg file."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")


def _source_options(function: Function) -> Function:
    """Add the options that select scored traces."""
    options = (
        click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path)),
        config_option,
        click.option(
            "--since",
            type=Moment(),
            help="From topics, read only records from this time on: 2026-01-31T12:00, in UTC by default, or "
            "an age such as 2h. A record's time is that of its raw record.",
        ),
        click.option("--until", type=Moment(), help="Read only records before this time."),
        click.option(
            "--embedder",
            type=click.Choice(["none", "lexical", "sentence-transformers"]),
            help="Embedder for raw traces, instead of embedding.backend.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _print(*parts: str | Table) -> None:
    """Print lines, which the terminal may wrap, and tables, which are fitted to its width."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNLIMITED
    for part in parts:
        if isinstance(part, str):
            click.echo(part)
        else:
            console.print(part)


@click.group()
def policy() -> None:
    """Check, compare, tune, rescore and evaluate policies.

    A policy is the `[policy]` section of a TOML file such as the worker's settings. The workers keep each one
    that was ever in force in a topic, by its digest: the value of the header `kp-policy`.
    """


@policy.command()
@click.argument("file", type=_PolicyFile)
def check(file: Path) -> None:
    """Check and print the policy of FILE.

    Prints its digest (the `kp-policy` header), its thresholds and weights by domain, and its changes from the
    KnowledgePulse SDK's policy.
    """
    from worker.tools.policies.tables import policy_table  # noqa: PLC0415 - keeps `--help` fast

    checked = load_policy(file)
    _print(f"policy {checked.digest}", policy_table(checked), "")
    _print_changes(Policy(), checked, "Changes from the SDK's policy:")
    for suspicion in suspicions(checked):
        _print(f"note: {suspicion}")


@policy.command()
@click.argument("old")
@click.argument("new")
@config_option
def diff(old: str, new: str, config: Path | None) -> None:
    """Describe the changes from the policy OLD to NEW.

    Each is a file, or the digest of a policy that was in force.
    """
    before, after = _file_or_kept(old, config), _file_or_kept(new, config)
    _print_changes(before, after, f"policy {before.digest} → {after.digest}:")


def _file_or_kept(name: str, config: Path | None) -> Policy:
    if Path(name).exists():
        return load_policy(Path(name))
    from worker.tools.policies.history import find_policy  # noqa: PLC0415 - keeps `--help` fast

    if not re.fullmatch("[0-9a-f]{4,12}", name):
        raise InputError(f"{name}: neither a file nor a digest, which has 4 to 12 hexadecimal digits")
    return find_policy(_history(config), name).policy


@policy.command()
@click.argument("digest", required=False)
@config_option
def show(digest: str | None, config: Path | None) -> None:
    """Print a policy that was in force.

    DIGEST is its digest or the beginning of it. Without DIGEST, prints the one that came into force last.
    """
    from worker.tools.policies.history import find_policy  # noqa: PLC0415 - keeps `--help` fast
    from worker.tools.policies.tables import policy_table  # noqa: PLC0415

    history = _history(config)
    kept = find_policy(history, digest) if digest else history[-1]
    _print(f"policy {kept.policy.digest}, in force since {time_text(kept.since_ms)}")
    _print(policy_table(kept.policy), "")
    _print_changes(Policy(), kept.policy, "Changes from the SDK's policy:")


@policy.command()
@config_option
def history(config: Path | None) -> None:
    """List the policies that were in force, each with its changes from the one before.

    A policy that came into force more than once is listed with the last time.
    """
    before = Policy()
    for kept in _history(config):
        _print(f"{time_text(kept.since_ms)}  policy {kept.policy.digest}")
        _print(*(f"  {line}" for line in changes(before, kept.policy) or ["no change"]))
        before = kept.policy


def _history(config: Path | None) -> list[KeptPolicy]:
    from worker.tools.policies.history import policy_history  # noqa: PLC0415 - keeps `--help` fast

    return asyncio.run(policy_history(load_settings(config)))


def _print_changes(old: Policy, new: Policy, head: str) -> None:
    lines = changes(old, new)
    if not lines:
        _print("no effect on the score or decision of any trace")
    else:
        _print(head, *(f"  {line}" for line in lines))


@policy.command()
@_source_options
@_policy_option
@click.option(
    "--target",
    type=_SHARE,
    default=0.1,
    show_default=True,
    help="Share of each domain's traces that should pass.",
)
@_plot_option
@click.option(
    "--output",
    type=_NewFile(),
    help="Write the proposed [policy] to this file instead of printing it.",
)
@_json_option
def tune(
    file: Path | None, target: float, plot: Path | None, output: Path | None, as_json: bool, **source: Any
) -> None:
    """Find the thresholds that let a target share of the traces pass.

    Reads scored traces from `contribute` and `rejected`, or from FILES: output of `kp-worker score`, or raw
    traces, which are scored first. Prints for each domain the distribution of the scores, the share that
    passes by threshold, the points lost by dimension and the sensitivity to each weight; then a [policy] to
    review.
    """
    from worker.tools.policies.tables import tuning_tables  # noqa: PLC0415 - keeps `--help` fast
    from worker.tools.policies.tune import proposed_toml  # noqa: PLC0415
    from worker.tools.policies.tune import tune as run_tune  # noqa: PLC0415

    if output:
        _require_no_input(output, [*source["files"], source["config"], file])
    settings, active = _settings_and_policy(source, file)
    tuning = run_tune(_records(settings, source), active, target)
    if plot:
        from worker.tools.policies.plots import plot_tuning, save  # noqa: PLC0415 - matplotlib is slow to import

        with _writing(plot):
            save(plot_tuning(tuning), plot)
    if output:
        with _writing(output):
            output.write_text(proposed_toml(tuning), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(tuning.as_dict(), indent=2))
        return
    _print(*tuning_tables(tuning))
    if not output:
        _print("", proposed_toml(tuning).rstrip())


@policy.command()
@_source_options
@click.option("--policy", "file", type=_PolicyFile, required=True, help="The new policy.")
@click.option("--contribute", help="Topic to publish passing records to, with their new score.")
@click.option("--rejected", help="Topic to publish all other records to, with their new score.")
@click.option("--live", is_flag=True, help="Allow the workers' own output topics.")
@_json_option
def rescore(
    file: Path, contribute: str | None, rejected: str | None, live: bool, as_json: bool, **source: Any
) -> None:
    """Show the effect of another policy on traces that are already scored.

    Reads scored traces from `contribute` and `rejected`, or from FILES: output of `kp-worker score`, or raw
    traces, which are scored first. Publishes nothing unless --contribute and --rejected name topics.
    """
    from worker.scoring import rescore_all  # noqa: PLC0415
    from worker.tools.policies.tables import rescored_tables  # noqa: PLC0415 - keeps `--help` fast

    new, settings = load_policy(file), _settings(source)
    if contribute is None and rejected is None:
        rescored = rescore_all(_records(settings, source), new)
    elif contribute is None or rejected is None:
        raise click.UsageError("give both --contribute and --rejected: each record goes to one of them")
    elif source["files"]:
        raise click.UsageError("only records from topics can be published, not lines of files")
    else:
        from worker.tools.policies.republish import republish  # noqa: PLC0415
        from worker.tools.policies.scored_topics import Period  # noqa: PLC0415

        period = Period(source["since"], source["until"])
        with topic_progress() as progress:
            names = (contribute, rejected)
            rescored = asyncio.run(republish(settings, period, new, names, live=live, progress=progress))
    if as_json:
        click.echo(json.dumps(rescored.as_dict(), indent=2))
    else:
        _print(*rescored_tables(rescored))


def _label_options(function: Function) -> Function:
    """Add the options that select labels."""
    options = (
        click.option(
            "--labels",
            "label_files",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            multiple=True,
            help="File of labels, one JSON object per line: id, keep or reward, source, group. Repeatable.",
        ),
        click.option("--labels-topic", help="Topic of labels."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@policy.command()
@_source_options
@_label_options
@_policy_option
@click.option(
    "--precision",
    type=_SHARE,
    default=0.9,
    show_default=True,
    help="Precision to find a threshold for.",
)
@click.option(
    "--min-reward",
    type=_Number(),
    default=0.5,
    show_default=True,
    help="Lowest reward of a trace worth keeping.",
)
@_plot_option
@_json_option
def evaluate(
    file: Path | None, precision: float, min_reward: float, plot: Path | None, as_json: bool, **source: Any
) -> None:
    """Evaluate scores against labels.

    Reads scored traces as `tune` does. Prints for each domain the AUC of the score and of each dimension,
    precision and recall by threshold, and the calibration of the agents' confidence. Warns if the score
    contains the label. Labels of one `group`, such as the trials of one task, are resampled together.
    """
    from worker.tools.policies.evaluate import evaluate as run_evaluate  # noqa: PLC0415 - keeps `--help` fast
    from worker.tools.policies.tables import evaluation_tables  # noqa: PLC0415

    settings, active = _settings_and_policy(source, file)
    labels = _labels(settings, source, required=True)
    evaluation = run_evaluate(
        _records(settings, source),
        labels,
        active,
        precision=precision,
        min_reward=min_reward,
    )
    if plot:
        from worker.tools.policies.plots import plot_evaluation, save  # noqa: PLC0415 - matplotlib is slow to import

        with _writing(plot):
            save(plot_evaluation(evaluation), plot)
    if as_json:
        click.echo(json.dumps(evaluation.as_dict(), indent=2))
    else:
        _print(*evaluation_tables(evaluation))


@policy.command()
@_source_options
@_label_options
@_policy_option
@click.option(
    "--count",
    type=click.IntRange(1, sys.maxsize),
    default=20,
    show_default=True,
    help="Maximum number of traces.",
)
def queue(file: Path | None, count: int, **source: Any) -> None:
    """Print the traces with the most informative labels, one JSON object per line.

    These are unlabelled traces close to their threshold that are not near copies of each other. Domains with
    fewer labels come first.
    """
    from worker.tools.policies.queue import labelling_queue  # noqa: PLC0415 - keeps `--help` fast

    settings, active = _settings_and_policy(source, file)
    labels = _labels(settings, source, required=False)
    records = _records(settings, source)
    if labels and not any(record.id in labels for record in records):
        errors.print(f"none of the {len(labels)} labels matches one of the {len(records)} traces")
    for one in labelling_queue(records, labels, active, count):
        click.echo(json.dumps(one.as_dict()))


@click.group()
def traces() -> None:
    """List scored traces, and explain the score of one."""


@traces.command("list")
@_source_options
@click.option("--domain", help="List only traces of this task domain or profile.")
@click.option("--min", "least", type=_SCORE, default=0.0, help="Lowest score to list.")
@click.option("--max", "most", type=_SCORE, default=1.0, help="Highest score to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_traces(domain: str | None, least: float, most: float, as_json: bool, **source: Any) -> None:
    """List scored traces, one per line.

    Reads scored traces from `contribute` and `rejected`, or from FILES: output of `kp-worker score`, or raw
    traces, which are scored first.
    """
    from worker.tools.policies import listing as lines  # noqa: PLC0415 - keeps `--help` fast

    if least > most:
        raise click.UsageError(f"--min {least:g} is above --max {most:g}: no score is between them")
    records = _records(_settings(source), source)
    if not as_json:
        click.echo(lines.HEAD)
    count = 0
    for record in records:
        if domain in (None, record.task_domain, record.score.domain) and (
            least <= record.score.quality_score <= most
        ):
            click.echo(lines.as_json(record) if as_json else lines.row(record))
            count += 1
    errors.print(f"{count} traces")


@traces.command("show")
@click.argument("name")
@_source_options
@_policy_option
def show_trace(name: str, file: Path | None, **source: Any) -> None:
    """Explain the score of a trace.

    NAME is its id, or topic/partition/offset of the raw or of the scored record, or file:line. Shows the
    contribution of each dimension, the overrides, the threshold, the nearest earlier trace, and what would
    have made the trace pass. The policy is the one that the trace was scored under, as the workers keep it;
    for a trace of a file it is the settings' policy. --policy names another.
    """
    from worker.tools.policies.explain import explain  # noqa: PLC0415 - keeps `--help` fast

    settings, active = _settings_and_policy(source, file)
    if source["files"]:
        found = [one for one in _records(settings, source) if name in (one.id, one.source)]
    else:
        found = asyncio.run(_find(settings, name))
    if not found:
        raise InputError(f"no scored trace is {name}")
    policies = {} if file else asyncio.run(_policies(settings, found))
    for number, record in enumerate(found):
        _print(*([""] if number else []), *explain(record, policies.get(record.policy, active)))


async def _find(settings: Settings, name: str) -> list[ScoredRecord]:
    from worker.tools.policies.scored_topics import open_scored_topics  # noqa: PLC0415 - files need no Kafka

    with topic_progress() as progress:
        async with open_scored_topics(settings, progress) as topics:
            return await topics.find(name)


async def _policies(settings: Settings, records: Iterable[ScoredRecord]) -> dict[str | None, Policy]:
    """Return the policies by digest, as far as the workers kept them, unless the settings' is enough."""
    from worker.tools.policies.history import policy_history  # noqa: PLC0415 - files need no Kafka

    if all(one.policy in (None, settings.policy.digest) for one in records):
        return {}
    try:
        return {kept.policy.digest: kept.policy for kept in await policy_history(settings)}
    except (TopicError, InputError):  # of an earlier release, which kept none
        return {}


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Convert an OSError to an InputError that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _settings_and_policy(source: dict[str, Any], file: Path | None) -> tuple[Settings, Policy]:
    """Return the settings, and the policy of the file, or else theirs; read nothing else."""
    settings = _settings(source)
    return settings, load_policy(file) if file else settings.policy


def _settings(source: dict[str, Any]) -> Settings:
    settings = load_settings(source["config"])
    if source["embedder"] is None:
        return settings
    return override(settings, "embedding", {"backend": source["embedder"]})


def _records(settings: Settings, source: dict[str, Any]) -> list[ScoredRecord]:
    """Return the scored traces of the given files, or else of the topics."""
    if not source["files"]:
        return asyncio.run(_records_of_topics(settings, source["since"], source["until"]))
    if source["since"] or source["until"]:
        raise click.UsageError("--since and --until apply only to topics: lines of files have no timestamp")
    from worker.embedding import load_embedder  # noqa: PLC0415 - reading topics needs no numpy
    from worker.tools.policies.scored_files import read_files  # noqa: PLC0415
    from worker.tools.score.offline import make_scorer  # noqa: PLC0415

    def scorer() -> Scorer:
        return make_scorer(settings, load_embedder(settings.embedding, settings.cache))

    return list(read_files(source["files"], scorer, settings.limits.trace_bytes))


async def _records_of_topics(
    settings: Settings, since: datetime | None, until: datetime | None
) -> list[ScoredRecord]:
    from worker.tools.policies.scored_topics import Period, open_scored_topics  # noqa: PLC0415 - files need no Kafka

    with topic_progress() as progress:
        async with open_scored_topics(settings, progress) as topics:
            records = [record async for _, record in topics.read(Period(since, until))]
            _print_skipped(topics)
    if not records:
        names = f"{settings.topics.contribute} and {settings.topics.rejected}"
        raise InputError(f"{names} contain no scored traces{' of that period' if since or until else ''}")
    return records


def _print_skipped(topics: ScoredTopics) -> None:
    if topics.repeats:
        errors.print(f"skipped {topics.repeats} records that repeat earlier ones")
    if topics.foreign:
        errors.print(f"skipped {topics.foreign} records that were not written by a worker")


def _labels(settings: Settings, source: dict[str, Any], *, required: bool) -> Labels:
    from worker.tools.policies.labels import labels_of_files, labels_of_topic  # noqa: PLC0415

    files, topic = source["label_files"], source["labels_topic"]
    if required and not files and topic is None:
        raise click.UsageError("no labels: give --labels FILE or --labels-topic TOPIC")
    labels = labels_of_files(files)
    if topic is not None:
        with topic_progress() as progress:
            labels |= asyncio.run(labels_of_topic(settings, topic, progress))
    return labels
