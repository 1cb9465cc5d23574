"""The rows: a fault, its doses and the deviations from the usual trial."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos import hostile
from chaos.embedder import NOISE
from chaos.faults import (
    GROUP_COORDINATOR,
    TRANSACTION_COORDINATOR,
    broker,
    coordinators,
    disk,
    everything,
    jump,
    kill,
    network,
    rolling,
    upgrade,
    write_hostile,
)
from chaos.long_lives import live
from chaos.trial import Trial
from support.java_kafka import VERSION

FORMER_KAFKA = "4.1.2"
"""The release of Kafka that brokers are upgraded from."""


@dataclass(frozen=True)
class Row:
    """A fault.

    Attributes:
        fault: description of the fault.
        run: injects the fault, dose by dose.
        full: the doses of `make chaos`.
        short: the doses of the short form.
        workers: number of workers before the first dose.
        nodes: number of nodes of the Kafka cluster.
        malformed_every: every n-th record is malformed; 0 means none.
        transactional: whether to publish in transactions, half of which are aborted.
        proxied: whether to connect the workers to the broker through a proxy.
        without: the mechanism to switch off; the row must then fail.
        release: git revision of the workers; by default, they run this release.
        topics: topic settings that differ from those of `kp-worker topics`, by role.
        restarts: maximum number of process restarts in each round; None means any number.
        kafka: the release of Kafka that the brokers run first.
        clocks: whether the wall clocks of brokers and workers can jump.
        own_disks: whether each broker has a disk of its own, if root runs the row.
        tls: whether workers log in with a certificate, through the proxies.
        noise: of the embedder, whose vectors the audit can recompute without any.
        rate: published records per second.
        most: number of records at which the load drops to a tenth. On a busy machine, a row lasts for so long
            that the ledger's topic would be compacted, and the audit needs all of its vectors.
    """

    fault: str
    run: Callable[[Trial, Sequence[Any]], Awaitable[None]]
    full: Sequence[Any]
    short: Sequence[Any]
    workers: int = 2
    nodes: int = 1
    malformed_every: int = 0
    transactional: bool = False
    proxied: bool = False
    without: str = ""
    release: str | None = None
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    restarts: int | None = None
    kafka: str = VERSION
    clocks: bool = False
    own_disks: bool = False
    tls: bool = False
    noise: float = NOISE
    rate: float = 100.0
    most: float = 20_000


_NO_LIMITS = {
    "max.message.bytes": str(16 * hostile.MiB),
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
}
"""Of the raw topic; the other topics have Kafka's."""
_ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Kafka's default is an hour."""
_COORDINATIONS = [
    (topic, place)
    for topic in (GROUP_COORDINATOR, TRANSACTION_COORDINATOR)
    for place in ("positions", "commit")
]
ROWS: dict[str, Row] = {
    "kill": Row(
        "kill -9 of one of two workers, at any time and with a transaction open",
        kill,
        [None, None, None, "positions", "commit"] * 6,
        [None, "commit"],
    ),
    "upgrade": Row(
        "two workers of another release replaced by this one, one at a time, and back",
        upgrade,
        ["forth", "back"] * 5,
        ["forth", "back"],
        release="HEAD",
    ),
    "everything": Row(
        "another release upgraded to a share, then policies changed, workers killed, partitions moved",
        everything,
        ["policy", "kill", "move", "kill", "kill"] * 8,
        ["policy", "kill", "move"],
        release="HEAD",
    ),
    "broker": Row(
        "kill -9 of the only broker, the probes polled",
        broker,
        [5] * 5 + [60] * 5 + [600],
        [2],
    ),
    "rolling": Row(
        f"each of three brokers in turn stopped or killed -9, and started as another release: "
        f"{FORMER_KAFKA} → {VERSION} → {FORMER_KAFKA} → {VERSION}",
        rolling,
        [VERSION, FORMER_KAFKA, VERSION],
        [VERSION],
        nodes=3,
        kafka=FORMER_KAFKA,
    ),
    "coordinators": Row(
        "kill -9 of the coordinator of the group or of the transactions, while each worker has one open",
        coordinators,
        _COORDINATIONS * 3,
        [(GROUP_COORDINATOR, "positions"), (TRANSACTION_COORDINATOR, "commit")],
        nodes=3,
    ),
    "network": Row(
        "connections cut, reset, slowed, black-holed; a tenth of the packets lost",
        network,
        [(fault, s) for s in (1, 3, 6, 12, 45) for fault in ("cut", "reset", "slow", "swallow", "lose")],
        [(fault, 1) for fault in ("cut", "reset", "slow", "swallow")],
        proxied=True,
    ),
    "disk": Row(
        "the disk of one of three brokers full, the worker's disk full",
        disk,
        ["broker", "worker"] * 3,
        ["broker", "worker"],
        workers=1,
        nodes=3,
        own_disks=True,
    ),
    "clocks": Row(
        "the wall clock of the broker or of the workers jumps by an hour, forth or back, and returns",
        jump,
        [(whose, hours) for whose in ("brokers", "workers") for hours in (1, -1)] * 2,
        [("brokers", 1), ("workers", -1)],
        topics=dict.fromkeys(("raw", "contribute", "rejected", "dead_letter"), _ANY_TIME),
        clocks=True,
    ),
    "hostile": Row(
        "codecs, ids of 900 kB, keys and headers of 3 MB, names that are not UTF-8, times of any year, slow "
        "values and decompression bombs, one record in ten malformed, a transactional producer, half "
        "aborted, and kill -9 of a worker",
        write_hostile,
        [hostile.mixed] * 3,
        [hostile.mixed],
        topics={"raw": _NO_LIMITS},
        restarts=0,
        malformed_every=10,
        transactional=True,
    ),
    "long": Row(
        "two hours of all this: workers restarted and killed, policies changed, brokers replaced, "
        "certificates renewed, packets lost and late, clocks that jump by hours, and a page that is read",
        live,
        [7200.0],
        [60.0],
        nodes=3,
        proxied=True,
        tls=True,
        clocks=True,
        topics=dict.fromkeys(("raw", "contribute", "rejected", "dead_letter"), _ANY_TIME),
        noise=0.0,
        rate=25.0,
        most=math.inf,
    ),
    "without-ledger": Row(
        "kill -9, the ledger is not read: scores must differ",
        kill,
        [None] * 5,
        [None],
        without="ledger",
    ),
}
