"""Section `replicas`: what a transaction costs one broker, and three that each have a copy of all records."""

from __future__ import annotations

import asyncio
import time
from uuid import uuid4

import psutil
from aiokafka.admin import NewTopic

from bench.context import Context
from bench.measure import Budget, Figure, Section, ratio
from bench.traces import STREAM_BYTES
from bench.transaction import ENTRY_BYTES, OUTPUTS, PARTITIONS
from chaos.brokers import Brokers, running_brokers
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from support.streams import admin_of

COUNTS = (1, 3)
ROUNDS, ROUNDS_SHORT = 5, 2
TRANSACTIONS, REST = 50, 5.0
"""Transactions of a round, after so many seconds of rest, whose CPU time does not count."""


async def run(context: Context, budget: Budget) -> Section:
    """Commit to one broker, then to three."""
    section = Section(
        "replicas", f"CPU time of a transaction with {2 * OUTPUTS} records and {PARTITIONS} positions"
    )
    rounds = ROUNDS_SHORT if context.short else ROUNDS
    costs = {}
    for count in COUNTS:
        context.say(f"{count} brokers")
        costs[count] = await asyncio.to_thread(_measured, count, rounds)  # brokers end with their thread
        section.figures.append(Figure(f"{count} brokers, together", "ms", costs[count]))
    section.figures.append(ratio("three brokers / one", costs[3], costs[1]))
    section.notes.append("without what the brokers take at rest; the rounds after their start take more")
    return section


def _measured(count: int, rounds: int) -> list[float]:
    with running_brokers(count) as brokers:
        return asyncio.run(_costs(brokers, count, rounds))


async def _costs(brokers: Brokers, copies: int, rounds: int) -> list[float]:
    """Return the milliseconds of CPU time of a transaction at all brokers, above those at rest, by round."""
    name = f"bench-{uuid4().hex[:8]}"
    topics = {f"{name}-outputs": STREAM_BYTES, f"{name}-changelog": ENTRY_BYTES}
    records = [
        OutputRecord(topic, number % PARTITIONS, NO_TIMESTAMP, b"key", bytes(size), ())
        for topic, size in topics.items()
        for number in range(OUTPUTS)
    ]
    costs = []
    async with admin_of(brokers.direct) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, copies) for topic in topics])
    async with TransactionalPublisher(Config(bootstrap_servers=brokers.direct), name) as publisher:
        for number in range(rounds):
            began, at = _cpu_seconds(brokers), time.monotonic()
            await asyncio.sleep(REST)
            rested, until = _cpu_seconds(brokers), time.monotonic()
            for offset in range(TRANSACTIONS):
                position = Position(number * TRANSACTIONS + offset + 1)
                positions = {(f"{name}-outputs", partition): position for partition in range(PARTITIONS)}
                await publisher.commit(records, positions, GroupMetadata(name))
            at_rest = (rested - began) / (until - at) * (time.monotonic() - until)
            costs.append((_cpu_seconds(brokers) - rested - at_rest) / TRANSACTIONS * 1000)
    return costs


def _cpu_seconds(brokers: Brokers) -> float:
    processes = [psutil.Process(node.process.pid) for node in brokers.nodes if node.process is not None]
    return sum(sum(process.cpu_times()[:2]) for process in processes)
