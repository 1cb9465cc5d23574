"""A Kafka broker of a single node, as the demo and the tests start it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from knowledgepulse_kafka.connection_diagnosis import problem_with
from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.demo.processes import last_lines

KAFKA_VERSION = "4.4.0"
"""Version of Apache Kafka."""

START_LIMIT = 120.0
"""Seconds until a broker started here must respond."""

MessageCallback = Callable[[str], None]
"""Called with a message for each step that takes time."""


class Unavailable(Exception):  # noqa: N818 - a result of trying a kind of broker, not an error
    """A kind of broker is not available; has the reason in one line, a remedy, and log lines."""

    def __init__(self, reason: str, remedy: str | None = None, details: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.details = details


def node_settings(*, clients: str, advertised: str, broker: str, controller: str) -> dict[str, str]:
    """Return the settings of a single node that is both broker and controller.

    The listener between brokers has an address of its own, because the port that Docker publishes does not
    exist inside the container.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"CLIENTS://{clients},BROKER://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"CLIENTS://{advertised},BROKER://{broker}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller}",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "message.max.bytes": str(16 * 1024 * 1024),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def start_broker(stack: ExitStack, command: Sequence[str], log: Path, servers: str) -> Callable[[], bool]:
    """Start a broker, which is stopped with the stack, and wait until it responds.

    Returns:
        whether the broker is running.

    Raises:
        Unavailable: the broker exits, or does not respond within :data:`START_LIMIT`.
    """
    process = processes.start(stack, command, log)

    def is_running() -> bool:
        return process.poll() is None

    wait_for_answer(servers, START_LIMIT, is_running, log=lambda: last_lines(log.read_bytes()))
    return is_running


def wait_for_answer(
    servers: str,
    limit: float,
    is_running: Callable[[], bool] = lambda: True,
    log: Callable[[], Sequence[str]] = lambda: (),
) -> None:
    """Wait until a broker responds; raise Unavailable if it exits, or after the limit in seconds."""
    deadline = time.monotonic() + limit
    while problem := asyncio.run(problem_with(servers)):
        if not is_running():
            raise Unavailable("the broker exited during its start", details=log())
        if time.monotonic() > deadline:
            raise Unavailable(f"no response within {limit:.0f} s: {problem}", details=log())
        time.sleep(0.1)
