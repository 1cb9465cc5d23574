"""Brokers: whether a worker can use them, and what is said of those that it cannot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from interoperability.part import Case, Part
from knowledgepulse_worker.tools.demo.brokers import EMBEDDED, first_available
from support.commands import kp_worker
from support.java_kafka import VERSION, running_broker
from support.other_brokers import DESCRIBE_CONFIGS, INIT_PRODUCER_ID, TRANSACTIONAL, OtherBroker

PASSES = "`check --try` passes"
KAFKA = f"Apache Kafka {VERSION}"


class _Other(NamedTuple):
    """What a proxy changes of Kafka's answers, and what commands then say, which end with a status."""

    what: str
    differences: dict[str, Any]
    commands: tuple[str, ...]
    status: int
    words: str

    @property
    def expected(self) -> str:
        *others, last = (f"`{command}`" for command in self.commands)
        return f"{', '.join(others)} and {last} end with {self.status}: {self.words}"


OTHERS = (
    _Other(
        "requests of transactions are not announced",
        {"hides": TRANSACTIONAL},
        ("check", "run"),
        os.EX_CONFIG,
        "the brokers do not know InitProducerId",
    ),
    _Other(
        "they are announced, and InitProducerId is answered with UNKNOWN_SERVER_ERROR",
        {"fails_at": {INIT_PRODUCER_ID}},
        ("check --try", "run"),
        os.EX_CONFIG,
        "the brokers refuse transactions",
    ),
    _Other(
        "the connection is closed at DescribeConfigs",
        {"closes_at": {DESCRIBE_CONFIGS}},
        ("check", "topics", "run", "demo"),
        1,
        "closes the connection at DescribeConfigs",
    ),
)


def _run(_: Path) -> Iterator[Case]:
    with first_available([EMBEDDED], print) as embedded:
        program = f"noida-db {version('noida-db')}, the demo's"
        yield Case(program, "a worker", asyncio.run(_checked(embedded.bootstrap_servers)), PASSES)
    with running_broker(print) as kafka:
        yield Case(KAFKA, "a worker", asyncio.run(_checked(kafka.bootstrap_servers)), PASSES)
        for other in OTHERS:
            seen = asyncio.run(_said(kafka.bootstrap_servers, other))
            yield Case(f"{KAFKA} behind a proxy", other.what, seen, other.expected)


async def _checked(servers: str) -> str:
    await _invoked(servers, "topics")
    status, said = await _invoked(servers, "check", "--try")
    return PASSES if status == 0 else said


async def _said(servers: str, other: _Other) -> str:
    async with OtherBroker(servers, **other.differences).serving() as broker:
        ended = [await _invoked(broker.address, *command.split()) for command in other.commands]
    wrong = [said for status, said in ended if status != other.status or other.words not in said]
    return "; ".join(wrong) or other.expected


async def _invoked(servers: str, *arguments: str) -> tuple[int | None, str]:
    environment = {
        "KP_KAFKA__BOOTSTRAP_SERVERS": servers,
        "KAFKA_BOOTSTRAP_SERVERS": servers,  # the demo's
        "KP_EMBEDDING__BACKEND": "none",
    }
    status, output, errors = await kp_worker(*arguments, **environment)
    return status, output + errors


PART = Part((), _run)
