"""A single Apache Kafka broker with settings of a test's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from knowledgepulse_worker.tools.demo.kafka_node import node_settings, start_broker
from knowledgepulse_worker.tools.demo.processes import LOOPBACK, free_ports
from support.java_kafka import JavaKafka


@contextmanager
def configured_broker(folder: Path, settings: Mapping[str, str], jvm: Sequence[str] = ()) -> Iterator[str]:
    """Start a broker, and stop it afterwards; yield its address.

    Args:
        folder: an existing folder for its files.
        settings: its settings, where they differ from the usual ones.
        jvm: further options of the JVM.
    """
    clients, broker, controller = (f"{LOOPBACK}:{port}" for port in free_ports(3))
    node = node_settings(clients=clients, advertised=clients, broker=broker, controller=controller)
    with ExitStack() as stack:
        every = node | {"log.dirs": str(folder / "data"), **settings}
        command = JavaKafka.find(print).formatted(folder, every, ["-Xmx512m", *jvm])
        start_broker(stack, command, folder / "broker.log", clients)
        yield clients
