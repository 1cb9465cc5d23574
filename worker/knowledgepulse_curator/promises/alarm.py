"""Is a promise still kept? A test at which one may look every night.

A gambler bets against the promise, task by task: each multiplies what they have by 1 + b (P - m) / (1 - P),
where m is the part of the task's labelled runs that is worth keeping. As long as at least P are kept, nobody
gains on average, so what they have reaches 1 / error with a probability of ``error`` at most, however often
one looks (Ville's inequality; Waudby-Smith and Ramdas, *Estimating means of bounded random variables by
betting*, JRSS B 86, 2024). What was counted is not taken back, and a task counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from knowledgepulse_curator.labels.fitted_traces import hash_of, hashes_in
from knowledgepulse_curator.labels.groups import groups_of
from knowledgepulse_curator.labels.labels import Label, drawn_place, label_of
from knowledgepulse_curator.promises.certificate import ERROR, asked_of_feedback
from knowledgepulse_curator.promises.promise import Asked, Outcome, Promise, parts_without_label, strangers
from knowledgepulse_curator.promises.sample import Stream, is_chosen, kind_of
from knowledgepulse_worker import __version__
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.terminal.lines import file_errors

BETS = (0.02, 0.05, 0.1, 0.2, 0.35)
"""The parts b of what the gamblers have that they bet; what they have together is the mean."""

DUE_A_DAY = 5
"""The number of traces of each day and domain that are to be labelled while there is a promise."""


@dataclass(frozen=True)
class Alarm:
    """What labels since a promise say of it.

    Attributes:
        labels, kept: the numbers of the labels that counted, and of those worth keeping.
        tasks: hashes of their tasks.
        wealth: what the gambler of each of :data:`BETS` has.
        rang: the day of the trace whose label rang it; None if none has.
    """

    labels: int = 0
    kept: int = 0
    tasks: tuple[str, ...] = ()
    wealth: tuple[float, ...] = (1.0,) * len(BETS)
    rang: str | None = None


@dataclass(frozen=True)
class Heard:
    """A label since a promise: when its trace was recorded, of which task it is, and whether it is kept."""

    time_ms: int
    task: str
    kept: bool


def listened(alarm: Alarm, heard: Iterable[Heard], least: float) -> Alarm:
    """Return an alarm after more labels, in the order of their traces. A task that counted counts no more."""
    known, of_task = {*alarm.tasks}, defaultdict[str, list[Heard]](list)
    for one in sorted(heard, key=lambda one: (one.time_ms, one.task)):
        name = blake2b(one.task.encode("utf-8", "replace"), digest_size=6).hexdigest()
        if name not in known:
            of_task[name].append(one)
    wealth, rang, bets = np.array(alarm.wealth), alarm.rang, np.array(BETS)
    labels, kept = alarm.labels, alarm.kept
    for labelled in of_task.values():
        hits = sum(one.kept for one in labelled)
        labels, kept = labels + len(labelled), kept + hits
        wealth = wealth * (1 + bets * (least - hits / len(labelled)) / (1 - least))
        if rang is None and wealth.mean() >= 1 / ERROR:
            rang = datetime.fromtimestamp(labelled[0].time_ms / 1000, UTC).date().isoformat()
    return Alarm(labels, kept, (*alarm.tasks, *of_task), tuple(wealth.tolist()), rang)


class Watch(msgspec.Struct):
    """The promises of a file of ``policy evaluate --json``, and what was heard of them since."""

    promises: dict[str, Promise] = {}
    alarms: dict[str, dict[Literal["random", "feedback"], Alarm]] = {}


def watch_of(path: Path) -> Watch:
    """Read a file of ``policy evaluate --json``; of one that is not there, nothing is to be watched.

    Raises:
        InputError: it is another file.
    """
    with file_errors(path, "read"):
        if not path.exists():
            return Watch()
        text = path.read_bytes()
    try:
        return msgspec.json.decode(text, type=Watch)
    except DECODE_ERRORS as error:
        raise InputError(f"{path}: not output of `policy evaluate --json`: {error}") from None


def watched(watch: Watch, stream: Stream, labels: Sequence[Label], asked: Asked) -> Watch:
    """Return the promises that were made, and whether labels since then withdraw them.

    Only labels of traces that were chosen at random do. Others, under ``asked.odds``, only warn. A promise of
    another policy, embedder, number of partitions or release is not known any more, nor is one of agents of
    which there was no label.
    """
    alarms, promises = {}, {}
    for name, promise in watch.promises.items():
        if not promise.key:
            continue
        passing = since(promise, stream)
        random, feedback = _heard(promise, passing, labels, asked.min_reward)
        alarm = alarms[name] = dict(watch.alarms.get(name, {}))
        alarm["random"] = listened(alarm.get("random", Alarm()), random, promise.least)
        if asked.odds is not None:
            least = asked_of_feedback(promise.least, asked.odds)
            alarm["feedback"] = listened(alarm.get("feedback", Alarm()), feedback, least)
        without = parts_without_label(promise.agents, passing)
        unknown = [*_changed(promise, stream, asked), *strangers(without)]
        outcome: Outcome = "withdrawn" if alarm["random"].rang else "not known" if unknown else "promised"
        promises[name] = replace(promise, outcome=outcome, unknown=unknown, without_label=without)
    return Watch(promises, alarms)


def since(promise: Promise, stream: Stream) -> list[ScoredRecord]:
    """Return the traces that pass and came after a promise; without times, those without a label of it."""
    known, last = hashes_in(promise.ids or ""), promise.last_ms

    def is_later(record: ScoredRecord) -> bool:
        if record.timestamp_ms is not None and last is not None:
            return record.timestamp_ms > last
        return hash_of(record) not in known

    passing = stream.passing(promise.domain, None) if promise.domain in stream.domains else []
    return [record for record in passing if is_later(record)]


def due(promise: Promise, stream: Stream) -> list[ScoredRecord]:
    """Return the traces that are to be labelled for a promise: of each day, a few that the key chooses."""
    of_day = defaultdict[int, list[ScoredRecord]](list)
    for record in since(promise, stream):
        of_day[(record.timestamp_ms or 0) // 86_400_000].append(record)
    return [
        record
        for _, records in sorted(of_day.items())
        for record in sorted(records, key=lambda one: drawn_place(one.id, promise.key))[:DUE_A_DAY]
    ]


def _heard(
    promise: Promise, passing: Sequence[ScoredRecord], labels: Sequence[Label], min_reward: float
) -> tuple[list[Heard], list[Heard]]:
    """Return the labels of traces that were chosen at random, and the others, of those who judged before."""
    kinds = {*map(kind_of, promise.by)}
    named = {label.id: label for label in labels if kind_of(label.source) in kinds}
    pairs = [(record, label) for record in passing if (label := label_of(record, named)) is not None]
    groups = groups_of([record for record, _ in pairs], [label for _, label in pairs])
    random, feedback = list[Heard](), list[Heard]()
    for (record, label), (group, origin) in zip(pairs, groups, strict=True):
        # A cluster of words has another number each night.
        task = f"task {record.task or record.id}" if origin == "similar words" else group
        heard = Heard(record.timestamp_ms or 0, task, label.is_kept(min_reward) and not label.skipped)
        if is_chosen(label):
            random.append(heard)
        elif label.sampling is None:
            feedback.append(heard)
    return random, feedback


def _changed(promise: Promise, stream: Stream, asked: Asked) -> Iterator[str]:
    """Yield what is not as it was when a promise was made; a topic's partitions only grow."""
    partitions = 1 + max((record.log[1] for record in stream.records), default=0)
    for what, then, now in (
        ("policy", promise.policy, stream.policy.digest),
        ("embedder", promise.embedder, asked.embedder or promise.embedder),
        ("number of partitions", promise.partitions, max(partitions, promise.partitions)),
        ("release", promise.release, __version__),
    ):
        if then != now:
            yield f"it was made with the {what} {then}, and now it is {now}"


def alarm_lines(watch: Watch) -> Iterator[str]:
    """Yield sentences on what was heard since each promise."""
    for name, alarms in watch.alarms.items():
        for kind, alarm in alarms.items():
            of = "chosen at random" if kind == "random" else "that nobody chose"
            heard = f"{alarm.kept:,} of {counted(alarm.labels, 'label')} of passing traces {of} say keep"
            yield f"promise: {name}: since then, {heard}, of {counted(len(alarm.tasks), 'task')}"
            if alarm.rang:
                told = (
                    "withdrawn"
                    if kind == "random"
                    else "in doubt; only labels of traces chosen at random tell"
                )
                least = watch.promises[name].least
                yield f"warning: {name}: the promise of {least:.0%} is {told}, by labels until {alarm.rang}"
