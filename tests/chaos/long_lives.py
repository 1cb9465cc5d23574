"""A long life: all faults, one after another, for hours, beside which a page is read; then what has grown."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import aiohttp

from chaos.faults import jump, kill_one, network, replace_broker
from chaos.trial import Trial
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.policy import Policy
from support.streams import Worker

MEMORY = "memory early and at the end, MiB"
DESCRIPTORS = "descriptors beside connections early and at the end"
CONNECTIONS = "most connections to a broker early and at the end"
LEDGER = "entries that compaction would keep"
GROWTH = 1.05
"""Of the memory at the end to that after ten minutes, at most."""
ROOM = 20
"""Entries of a partition beside its vectors: its position, and the last scores of each domain."""
MOST_CONNECTIONS = 10
"""To a broker: a worker has five clients, each with at most two, one of them to a coordinator."""

_EARLY = 600.0
"""Seconds after which memory and descriptors are noted first; in the short form a third of it all."""


async def live(trial: Trial, doses: Sequence[float]) -> None:
    """Let all faults happen for a number of seconds, in turns of a random order."""
    (seconds,) = doses
    started = time.monotonic()
    kept, _ = trial.fleet.workers
    reading = asyncio.Lock()
    reader = asyncio.create_task(_read(kept, reading))
    trial.tasks.append(reader)
    counts: Counter[str] = Counter()
    early = None
    for name in _turns():
        if early is None and time.monotonic() > started + min(_EARLY, seconds / 3):
            early = await _at_rest(trial, kept, reading)
        if time.monotonic() > started + seconds:
            break
        trial.say(f"{name}, memory {trial.fleet.resident(kept) >> 20} MiB")
        await _FAULTS[name](trial, kept)
        await trial.shared()
        counts[name] += 1
    assert early is not None
    late = await _at_rest(trial, kept, reading, early[1])
    trial.tasks.remove(reader)
    reader.cancel()
    for number, name in enumerate((MEMORY, DESCRIPTORS, CONNECTIONS)):
        trial.notes[name] = [early[number], late[number]]
    trial.notes |= {LEDGER: await _ledger_keys(trial), "minutes": round((time.monotonic() - started) / 60)}
    trial.notes |= counts


def _turns() -> Iterator[str]:
    while True:
        yield from random.sample(sorted(_FAULTS), len(_FAULTS))


async def _at_rest(
    trial: Trial, worker: Worker, reading: asyncio.Lock, before: int | None = None
) -> tuple[int, int, int]:
    """Return a worker's memory in MiB and its descriptors and connections, while nothing comes or is read.

    Args:
        before: what it had before; what is no longer needed is closed within a minute.
    """
    await trial.paused()
    await trial.until(lambda: not trial.witness.missing, "some records have no output")
    async with reading:
        with suppress(AssertionError):
            await trial.until(
                lambda: before is None or trial.fleet.descriptors(worker)[0] <= before, "", limit=60
            )
        found = trial.fleet.resident(worker) >> 20, *trial.fleet.descriptors(worker)
    trial.load.resume()
    return found


async def _read(worker: Worker, reading: asyncio.Lock) -> None:
    """Read the pages of a worker once a second, as a browser and Prometheus do."""
    for path in itertools.cycle(("/", "/metrics", "/status.json")):
        async with reading:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with asyncio.timeout(5):
                    await worker.get(path)
        await asyncio.sleep(1)


async def _restart(trial: Trial, kept: Worker) -> None:
    """Stop the other worker in order, and start one in its place."""
    (other,) = (worker for worker in trial.fleet.workers if worker is not kept)
    async with trial.fault():
        await trial.fleet.stop(other)
        await trial.fleet.start()


async def _kill(trial: Trial, kept: Worker) -> None:
    (other,) = (worker for worker in trial.fleet.workers if worker is not kept)
    await kill_one(trial, random.choice((None, "positions", "commit")), other)


async def _change_policy(trial: Trial, _: Worker) -> None:
    policy = Policy(share=round(random.uniform(0.1, 0.5), 6), share_window=30)
    trial.fleet.change_policy(policy)
    await trial.until(partial(trial.fleet.follow, policy), "the workers do not take the new policy")


async def _roll(trial: Trial, _: Worker) -> None:
    for node in trial.brokers.nodes:
        await replace_broker(trial, node)


async def _disturb(trial: Trial, _: Worker) -> None:
    await network(
        trial, [(random.choice(("cut", "reset", "slow", "swallow", "lose")), random.uniform(1, 12))]
    )


async def _jump(trial: Trial, _: Worker) -> None:
    """Let the workers' clocks jump; those of brokers only jump in the row `clocks`.

    Once the clock of Kafka 4.4 has jumped back, replicas may stay out of sync for as long as it jumped, and
    partitions without a leader, although all brokers run: no later fault would find the cluster whole.
    """
    await jump(trial, [("workers", random.choice((-5, -1, 1, 5)))])


async def _renew(trial: Trial, _: Worker) -> None:
    """Renew the workers' certificate, and cut connections so that the new one is used."""
    trial.brokers.renew_certificate()
    await network(trial, [("reset", 1)])


_FAULTS: dict[str, Callable[[Trial, Worker], Awaitable[None]]] = {
    "workers restarted": _restart,
    "workers killed": _kill,
    "policies changed": _change_policy,
    "rounds of brokers replaced": _roll,
    "networks disturbed": _disturb,
    "clocks jumped": _jump,
    "certificates renewed": _renew,
}


async def _ledger_keys(trial: Trial) -> int:
    """Return how many keys of the ledger's topic have a value: what compaction keeps, whenever it runs."""
    records = await trial.stream.read(changelog_topic_name(trial.stream.settings.kafka.group))
    last = {(record.partition, record.key): record.value for record in records}
    return sum(value is not None for value in last.values())
