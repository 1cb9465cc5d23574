"""Faults that are injected into workers and brokers under load, dose by dose.

Depending on the fault, a dose is ignored, is a number of seconds or selects a variant.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus

import aiohttp
from aiokafka import AIOKafkaProducer

from chaos import hostile
from chaos.brokers import Node
from chaos.trial import PARTITIONS, Trial
from knowledgepulse_worker.http.probes import LIVE, READY
from knowledgepulse_worker.policy import (
    BUCKETS,
    FACTS_VERSION,
    REFERENCE_WEIGHTS,
    TERMS,
    DomainPolicy,
    LearnedValue,
    Policy,
    Term,
    Words,
)
from support import batches
from support.streams import Worker, admin_of

GROUP_COORDINATOR = "__consumer_offsets"
TRANSACTION_COORDINATOR = "__transaction_state"
"""The topics whose leaders coordinate groups and transactions."""

PROBE_GAP = 3.0
"""Maximum seconds between two responses of a probe."""


async def kill(trial: Trial, doses: Sequence[str | None]) -> None:
    """Kill one of two workers, at any time or with a transaction open, and start a replacement."""
    for place in doses:
        await kill_one(trial, place)


async def kill_one(trial: Trial, place: str | None = None, victim: Worker | None = None) -> None:
    """Kill a worker, at any time or with a transaction open, and start a replacement."""
    await trial.a_while()
    victim = victim or random.choice(trial.fleet.workers)
    async with trial.fault(victim):
        if place is not None:
            await trial.fleet.hold(victim, place)
        await trial.fleet.kill(victim)
        await trial.fleet.start()


async def upgrade(trial: Trial, doses: Sequence[str]) -> None:
    """Replace two workers of another release one at a time, and back again."""
    trial.witness.watch_pauses()
    for dose in doses:
        await _replace(trial, upgraded=dose == "forth")
    trial.notes["longest time without an output of a partition"] = f"{trial.witness.longest_pause:.1f} s"


async def _replace(trial: Trial, *, upgraded: bool) -> None:
    """Replace the workers, one at a time, by some of this release or of the fleet's."""
    trial.fleet.is_upgraded = upgraded
    for worker in tuple(trial.fleet.workers):
        await trial.fleet.stop(worker)
        await trial.fleet.start()
        await trial.shared()
        await trial.a_while()


async def everything(trial: Trial, doses: Sequence[str]) -> None:
    """Upgrade two workers of another release, then change their policy, kill one or add and stop one.

    Each policy has a share, some with a learned value, a cap for agents or a lowest score.
    """
    await _replace(trial, upgraded=True)
    for number, dose in enumerate(doses):
        if dose == "policy":
            domains = {name: DomainPolicy(learned=_learned()) for name in REFERENCE_WEIGHTS if number % 2}
            share = round(random.uniform(0.1, 0.5), 6)
            limits = {"min_score": 0.3 * (number % 3 == 0), "agent_cap": 0.5 if number % 4 else 1}
            policy = Policy(share=share, share_window=30, domains=domains, **limits)
            trial.fleet.change_policy(policy)
            await trial.until(partial(trial.fleet.follow, policy), "the workers do not take the new policy")
        elif dose == "move":
            async with trial.fault():
                await trial.fleet.start()
                await trial.shared()
            async with trial.fault():
                await trial.fleet.stop(random.choice(trial.fleet.workers))
        else:
            await kill_one(trial, random.choice((None, "positions", "commit")))
        await trial.a_while()


def _learned() -> LearnedValue:
    """Return a learned value with random weights of all terms and words."""
    terms = {
        name: Term(mean=0.5, deviation=0.5, weight=round(random.gauss(0, 0.5), 4), clip=3) for name in TERMS
    }
    return LearnedValue(
        share=round(random.uniform(0.1, 1), 4),
        facts_version=FACTS_VERSION,
        intercept=0,
        terms=terms,
        words=Words(unit=0.001, mean=0.01, weights=b64encode(random.randbytes(BUCKETS)).decode()),
    )


async def broker(trial: Trial, doses: Sequence[float]) -> None:
    """Kill the only broker and restart it after a number of seconds; both probes of each worker respond."""
    gaps = [0.0]
    polls = [
        asyncio.create_task(_poll(worker, path, gaps))
        for worker in trial.fleet.workers
        for path in (LIVE, READY)
    ]
    trial.tasks += polls
    (node,) = trial.brokers.nodes
    for seconds in doses:
        await trial.a_while()
        async with trial.fault():
            await node.kill()
            await asyncio.sleep(seconds)
            await node.start_again()
    for poll in polls:
        trial.tasks.remove(poll)
        poll.cancel()
    await asyncio.wait(polls)
    trial.notes["longest gap between two answers of a probe, s"] = round(max(gaps), 2)


async def _poll(worker: Worker, path: str, gaps: list[float]) -> None:
    """Poll a probe continuously, and record the seconds between responses."""
    answered = time.monotonic()
    while True:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(PROBE_GAP):
                status, _ = await worker.get(path)
            assert status == HTTPStatus.OK or path == READY, f"{path}: {status}"
            gaps.append(time.monotonic() - answered)
            answered = time.monotonic()
        gap = time.monotonic() - answered
        assert gap <= PROBE_GAP, f"{path}: no answer for {gap:.1f} s\n{worker.log()}"
        await asyncio.sleep(0.1)


async def rolling(trial: Trial, doses: Sequence[str]) -> None:
    """Stop or kill each broker in turn, and start it as another release once all replicas are in sync."""
    for release in doses:
        for node in trial.brokers.nodes:
            node.run_release(release)
            await replace_broker(trial, node)


async def replace_broker(trial: Trial, node: Node) -> None:
    """Stop or kill a broker, start it again, and wait until all replicas are in sync."""
    async with trial.fault():
        await random.choice((node.stop, node.kill))()
        await node.start_again()
    await _in_sync(trial)


async def coordinators(trial: Trial, doses: Sequence[tuple[str, str]]) -> None:
    """Kill the node that coordinates the group or the transactions while each worker has one open."""
    for topic, place in doses:
        await trial.a_while()
        async with trial.fault():
            await asyncio.gather(*(trial.fleet.hold(worker, place) for worker in trial.fleet.workers))
            node = await _leader_of(trial, topic)
            await node.kill()
            for worker in trial.fleet.workers:
                trial.fleet.release(worker)
        await node.start_again()
        await _in_sync(trial)


async def _leader_of(trial: Trial, topic: str) -> Node:
    """Return the node that leads the only partition of a coordinator's topic."""
    async with admin_of(trial.brokers.direct) as admin:
        ((partition,),) = [description["partitions"] for description in await admin.describe_topics([topic])]
    return next(node for node in trial.brokers.nodes if node.number == partition["leader"])


async def _in_sync(trial: Trial) -> None:
    names = [trial.stream.settings.topics.raw, GROUP_COORDINATOR, TRANSACTION_COORDINATOR]
    async with admin_of(trial.brokers.direct) as admin:

        async def all_copies() -> bool:
            return all(
                len(partition["isr"]) == len(partition["replicas"])
                for topic in await admin.describe_topics(names)
                for partition in topic["partitions"]
            )

        await trial.until(all_copies, "a copy is not in sync")


async def network(trial: Trial, doses: Sequence[tuple[str, float]]) -> None:
    """Disturb the connections between workers and broker for a number of seconds."""
    for fault, seconds in doses:
        await trial.a_while()
        async with trial.fault():
            assert any(proxy.connections for proxy in trial.proxies), "nobody is connected through a proxy"
            for proxy in trial.proxies:
                await getattr(proxy, fault)()
            await asyncio.sleep(seconds)
            for proxy in trial.proxies:
                await proxy.mend()


async def jump(trial: Trial, doses: Sequence[tuple[str, int]]) -> None:
    """Let the wall clock of brokers or workers jump by some hours, and then back."""
    clocks = {"brokers": trial.brokers.clock, "workers": trial.fleet.clock}
    for whose, hours in doses:
        clock = clocks[whose]
        assert clock is not None
        for off in (hours, 0):
            await trial.a_while(5.0, 15.0)  # transactions take up to 10 s
            async with trial.fault():
                clock.jump(off)


async def disk(trial: Trial, doses: Sequence[str]) -> None:
    """Fill a broker's disk, which stops it, or the worker's, which continues until its child is killed."""
    (worker,) = trial.fleet.workers
    for dose in doses:
        async with trial.fault():
            if dose == "broker":
                node = random.choice(trial.brokers.nodes)
                await node.fill_disk()
                await node.start_again()
                await _in_sync(trial)
            else:
                trial.fleet.fill_disk(worker)
                await trial.shared()
                trial.fleet.signal_child(worker, signal.SIGKILL)
                await asyncio.sleep(5)
                trial.fleet.free_disk(worker)


async def write_hostile(trial: Trial, doses: Sequence[hostile.Kind]) -> None:
    """Write hostile records into each partition, and kill one of two workers while it has them."""
    numbers = itertools.count(hostile.FIRST_NUMBER + 1, 10)  # each tenth trace of the load is malformed
    memory = 0
    async with AIOKafkaProducer(
        bootstrap_servers=trial.brokers.direct, max_request_size=2 * hostile.MiB
    ) as producer:
        for kind in doses:
            await trial.a_while()
            victim = random.choice(trial.fleet.workers)
            async with trial.fault(victim):
                for partition in range(PARTITIONS):
                    for data, records in kind(lambda: trial.make(next(numbers))):
                        await batches.send(
                            producer,
                            trial.stream.settings.topics.raw,
                            data,
                            records=records,
                            partition=partition,
                        )
                        trial.load.sent += records
                await trial.a_while(0.0, 0.5)
                await trial.fleet.kill(victim)
                await trial.fleet.start()
            memory = max(memory, trial.fleet.peak_memory())
    trial.notes["most memory, MiB"] = memory // hostile.MiB
