"""Histories: the published records and the events of workers and brokers, as functions of a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

MOMENTS = (
    "output taken",
    "output sent",
    "output written",
    "offsets sent",
    "ending",
    "ended",
    "embedding",
    "revoking",
    "assigned",
    "expelled",
)
"""The moments that an event may follow; the first six are those of a transaction."""

KINDS = {
    "kill": 14,
    "suspend": 14,
    "stop": 8,
    "add": 5,
    "cut": 8,
    "isolate": 8,
    "deaf": 6,
    "down": 5,
    "move": 5,
    "move_transactions": 4,
    "refuse": 4,
    "starve": 4,
    "slow": 3,
    "leaders": 3,
    "policy": 6,
    "compact": 5,
    "retain": 3,
    "recreate": 2,
    "transaction": 4,
    "hang": 3,
    "skew": 2,
}
"""What happens, and how often."""

RARE = ("grow", "expire", "truncate", "truncate")
"""Events that are drawn by themselves: none of them changes the other events of a seed."""
COMPACTED_SHARE = 0.08
"""The share of histories in which contributed traces need a key, and some records have none."""
RARE_SHARE = 0.1
STRANGER_SHARE = 0.03
"""The share of histories in which someone else moves the group's position while no worker runs."""
THROTTLED_SHARE = 0.05
"""The share of histories in which a quota throttles the producers."""


FOUND = (
    *(477, 722, 933, 1324, 2242, 2261, 3274, 6550, 12_962, 13_061, 22_279, 43_446),
    *(70_021_683, 80_006_028, 91_013_822),
)
"""Seeds that find rare breaks of ``mutants.jsonl``."""


class Size(NamedTuple):
    """The ranges from which a history's numbers are drawn.

    Attributes:
        records: the minimum and maximum number of records in a partition.
        spans: the virtual seconds in which the records are published.
        count: the maximum number of times that an event waits for its moment.
    """

    partitions: tuple[int, ...]
    pods: tuple[int, ...]
    records: tuple[int, int]
    spans: tuple[float, ...]
    max_elements: tuple[int, ...]
    events: tuple[int, ...]
    count: int
    scenarios: tuple[Callable[[Random, Setting], list[Event]], ...]


@dataclass(frozen=True)
class Setting:
    """The constants of a history."""

    partitions: int
    pods: int
    max_elements: int
    ttl: int | None
    in_flight: int
    interval: float
    is_noisy: bool
    embeds: bool
    redacts: bool
    knows_limits: bool
    small: tuple[tuple[str, int], ...]
    max_age: bool
    skew: float = 0.0
    deadly: float = 0.0
    compacts: bool = False


@dataclass(frozen=True)
class Event:
    """An event.

    Attributes:
        at: the event's time in virtual seconds; with a moment, the earliest time.
        moment: the event waits until this moment has come ``count`` times in its pod, and then for another
            ``steps`` callbacks.
        seconds: the event's duration.
        value: a number between 0 and 1 for any other random choice.
    """

    kind: str
    at: float
    pod: int = 0
    moment: str = ""
    count: int = 1
    steps: int = 0
    seconds: float = 0.0
    value: float = 0.0

    def __str__(self):
        when = f"at {self.at:.2f} s"
        if self.moment:
            when += f", {self.steps} callbacks after {self.count} x {self.moment}"
        return f"{when}: {self.kind} pod {self.pod} for {self.seconds:.2f} s ({self.value:.2f})"


@dataclass(frozen=True)
class Publication:
    """A raw record: a trace with some confidence, or a record that is not a trace."""

    partition: int
    at: float
    kind: str
    confidence: float = 0.5
    age: int = 0
    gap: int = 0

    def __str__(self):
        return f"{self.partition}:{self.kind}"


@dataclass(frozen=True)
class History:
    """All events and records of a seed.

    Attributes:
        of: the kind of process: "worker", "assembler" or "evaluator".
    """

    seed: int
    setting: Any
    publications: tuple[Any, ...]
    events: tuple[Event, ...]
    of: str = "worker"

    def __str__(self):
        records = ", ".join(map(str, self.publications))
        lines = [
            f"{self.of}, seed {self.seed}",
            str(self.setting),
            f"records: {records}",
            *map(str, self.events),
        ]
        return "\n  ".join(lines)


def history(seed):
    """Return the history of a seed."""
    is_large = Random(f"size {seed}").random() < LARGE_SHARE
    return of_size(seed, LARGE if is_large else SMALL)


def of_size(seed, size):
    """Return a seed's history if it has this size, or None."""
    random = Random(f"history {seed}")
    setting = replace(_setting(random, size), compacts=Random(f"compacts {seed}").random() < COMPACTED_SHARE)
    if setting.deadly:
        setting = replace(setting, partitions=size.partitions[-1], embeds=True)
    count = random.randint(*size.records) * setting.partitions
    span = random.choice(size.spans)
    publications = tuple(
        sorted(
            (_publication(random, setting, span) for _ in range(count)),
            key=lambda publication: publication.at,
        )
    )
    events = [event(random, setting.pods, span, size.count) for _ in range(random.choice(size.events))]
    is_deadly = any(publication.kind == "deadly" for publication in publications)
    if is_deadly or random.random() < 0.5:
        events += random.choice(size.scenarios if not is_deadly else (_suspects,))(random, setting)
    if is_deadly:
        # Otherwise, innocent records in progress when a process was killed may be taken for deadly.
        events = [event for event in events if event.kind != "kill"]
    rare, publications = _rare(seed, setting, span, publications)
    events += rare or _stranger(seed, setting, span)
    events += _throttled(seed, setting, span)
    return History(seed, setting, publications, tuple(sorted(events, key=lambda planned: planned.at)))


def _setting(random, size):
    small = random.choice(((), (), (), ("contribute",), ("changelog",), ("contribute", "changelog")))
    return Setting(
        partitions=random.choice(size.partitions),
        pods=random.choice(size.pods),
        max_elements=random.choice(size.max_elements),
        ttl=random.choice((None, None, 3)),
        in_flight=random.choice((1, 3, 8)),
        interval=random.choice((0.1, 1.0)),
        is_noisy=random.random() < 0.6,
        embeds=random.random() < 0.9,
        redacts=random.random() < 0.15,
        knows_limits=random.random() < 0.5,
        small=tuple((name, 700 if name == "changelog" else random.choice((300, 1400))) for name in small),
        max_age=random.random() < 0.1,
        skew=random.choice((0.0, 0.0, 0.0, -50_000.0)),
        deadly=random.choice((0, 0, 0, 0, 0, 0.06)),
    )


def _publication(random, setting, span):
    kinds = ("trace", "trace", "trace", "trace", "trace", "no trace", "empty")
    kind = "deadly" if random.random() < setting.deadly else random.choice(kinds)
    return Publication(
        random.randrange(setting.partitions),
        random.random() * span,
        kind,
        random.choice((0.2, 0.6, 0.9)),
        random.randrange(10),
        random.choice((0, 0, 0, 0, 0, 1, 4, 1000)),
    )


def event(random, pods, span, most, kinds=KINDS, moments=MOMENTS):
    """Return a random event, which waits for its moment at most this many times."""
    kind = random.choices(tuple(kinds), tuple(kinds.values()))[0]
    planned = Event(
        kind,
        random.random() * (span + 6),
        random.randrange(pods),
        seconds=random.choice((0.3, 3.0, 8.0, 14.0)) * (0.5 + random.random()),
        value=random.random(),
    )
    if random.random() < 0.65:
        moment = random.choice(moments)
        few = moment in {"revoking", "assigned", "expelled"}
        planned = replace(
            planned,
            moment=moment,
            count=random.randint(1, 2 if few else most),
            steps=random.choice((0, 0, 1, 2, 3, 5, 8, 13, 30)),
            at=random.choice((0.0, planned.at)),
        )
    return planned


def _rare(seed, setting, span, publications):
    """Return the rare events of a seed, and the publications with them."""
    random = Random(f"rare {seed}")
    if random.random() >= RARE_SHARE:
        return [], publications
    kind = random.choice(RARE)
    if kind == "grow":
        return [event(random, setting.pods, span, 3, {kind: 1})], publications
    # The second half of the records follows; before a truncation, workers may still score the first.
    runs = kind == "truncate" and random.random() < 0.5
    at, half = span * random.random() if runs else span + 6 + 4 * random.random(), len(publications) // 2
    stops = [Event("stop", at - 4, pod, seconds=5 + 3 * random.random()) for pod in range(setting.pods)]
    later = tuple(replace(publication, at=publication.at + at) for publication in publications[half:])
    return [*([] if runs else stops), Event(kind, at, value=random.random())], publications[:half] + later


def _stranger(seed, setting, span):
    """Return the events of a stranger; they change no other event of a seed."""
    random = Random(f"stranger {seed}")
    if random.random() >= STRANGER_SHARE:
        return []
    at = span * random.random()
    stops = [Event("stop", at, pod, seconds=5 + 3 * random.random()) for pod in range(setting.pods)]
    return [*stops, Event("stranger", at + 4, value=random.random())]


def _throttled(seed, setting, span):
    """Return the events of a quota on producers; they change no other event of a seed."""
    random = Random(f"throttled {seed}")
    if random.random() >= THROTTLED_SHARE:
        return []
    at, seconds = span * random.random() ** 2, 2 + 20 * random.random()
    return [Event("throttle", at, seconds=seconds, value=random.random())]


def _replaced(random, setting):
    """Suspend a worker for longer than a session, until its successor may have left again."""
    pod, at, away = random.randrange(setting.pods), 2 + random.random() * 6, 6 + random.random() * 8
    left = at + away * (0.6 + random.random() * 0.5)
    others = [other for other in range(setting.pods) if other != pod]
    kind = random.choice(("suspend", "isolate", "cut"))
    moment = random.choice(("", *MOMENTS[:5]))
    events = [Event(kind, at, pod, moment, 1, random.randrange(4), away, random.random())]
    leave = random.choice(("stop", "kill"))
    return events + [Event(leave, left, other, seconds=random.random() * 9) for other in others]


def _flapping(random, setting):
    """Expel a worker that gets its partitions back at once."""
    at, count, steps = random.random() * 5, random.randint(1, 8), random.randrange(6)
    seconds, longer = 5 + random.random() * 4, 1 + random.random() * 5
    if random.random() < 0.5:  # the broker of a record in flight is away longer than the coordinator
        return [
            Event("cut", at, pod, "output taken", count, steps % 3, seconds + longer * value, value)
            for pod in range(setting.pods)
            for value in (0.0, 0.9)
        ]
    kind, moment = random.choice(("isolate", "suspend")), random.choice(MOMENTS[:6])
    return [Event(kind, at, pod, moment, count, steps, seconds) for pod in range(setting.pods)]


def _recreated(random, setting):
    """Recreate the raw topic while no worker runs, or kill one a moment later."""
    at = 2 + random.random() * 8
    if random.random() < 0.5:
        away = [Event("stop", at - 1, pod, seconds=2 + random.random() * 4) for pod in range(setting.pods)]
        return [*away, Event("recreate", at, value=random.random())]
    kill = Event("kill", at, 0, random.choice(MOMENTS[:7]), random.randint(1, 6), random.randrange(9))
    return [Event("recreate", at, value=random.random()), kill]


def _suspects(random, setting):
    """Move the partitions of suspects that wait for their turn."""
    kind, steps, events = random.choice(("add", "isolate", "stop")), random.randrange(20), []
    for pod in range(setting.pods):
        count = random.randint(1, 2)
        events.append(Event("hang", 0.0, pod, "isolating", count, steps, 3 + random.random() * 6))
        events.append(Event(kind, 0.0, pod, "isolating", count, random.randrange(300), random.random() * 12))
    return events


def _answered_late(random, setting):
    """Delay a heartbeat's answer until the session has ended and another worker has the partitions."""
    kind, away = random.choice(("suspend", "suspend", "cut")), 7 + random.random() * 4
    pod, count, steps = random.randrange(setting.pods), random.randint(1, 3), random.randint(1, 3)
    return [Event(kind, 0.0, pod, "heartbeat", count, steps, away)]


LARGE = Size(
    partitions=(1, 2, 2, 3),
    pods=(1, 2, 2, 3),
    records=(6, 14),
    spans=(2.0, 10.0, 25.0),
    max_elements=(1, 2, 5, 5),
    events=(1, 2, 2, 3, 4, 6),
    count=12,
    scenarios=(_replaced, _flapping, _recreated),
)
SMALL = Size(
    partitions=(1,),
    pods=(1, 2, 2),
    records=(2, 5),
    spans=(0.5, 8.0),
    max_elements=(1, 2),
    events=(1, 1, 2),
    count=3,
    scenarios=(_replaced, _flapping, _recreated, _answered_late),
)
LARGE_SHARE = 0.2
"""Some breaks are found sooner by small histories, others by large ones: each size gets half of the time."""
