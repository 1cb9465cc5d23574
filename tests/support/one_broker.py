"""Run a command with one broker for all of its processes: `python -m support.one_broker pytest …`.

Each process of pytest-xdist would start a broker of its own. Kafka's classes are archived once, beside its
jars: a broker that maps them starts in half the CPU time (Java's class data sharing, JEP 350). The modules
that tests import are compiled meanwhile: after an installation, all processes would compile the same ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic

from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.demo.kafka_node import (
    START_LIMIT,
    Unavailable,
    node_settings,
    wait_for_answer,
)
from knowledgepulse_worker.tools.demo.processes import LOOPBACK, free_ports
from support.java_kafka import JavaKafka, running_broker
from support.streams import admin_of

SHARED_BROKER = "TESTS_BROKER"
"""The environment variable with the address of the broker."""

JAVA_OPTIONS = "JDK_JAVA_OPTIONS"


def class_archive() -> Path:
    """Return the archive of the classes that a broker loads, for this Java; create it on first use.

    Raises:
        Unavailable: there is no Java, or no Maven to download Kafka's jars with.
    """
    kafka = JavaKafka.find(print)
    version = subprocess.run([kafka.java, "-version"], capture_output=True, check=True).stderr
    digest = hashlib.sha256(version).hexdigest()[:8]
    archive = kafka.jars.with_name(f"{kafka.jars.name}-broker-{digest}.jsa")
    if not archive.exists():
        with TemporaryDirectory(dir=kafka.jars.parent) as folder:
            unfinished = Path(folder, archive.name)
            _archive(kafka, Path(folder), unfinished)
            unfinished.replace(archive)
    return archive


def _archive(kafka: JavaKafka, folder: Path, archive: Path) -> None:
    """Let a broker do what most tests ask of one, and write the archive at its end."""
    clients, broker, controller = (f"{LOOPBACK}:{port}" for port in free_ports(3))
    node = node_settings(clients=clients, advertised=clients, broker=broker, controller=controller)
    kafka.formatted(folder, node | {"log.dirs": str(folder / "data")}, [])
    with ExitStack() as stack:
        command = kafka.node(folder, [f"-XX:ArchiveClassesAtExit={archive}"])
        process = processes.start(stack, command, folder / "broker.log")
        wait_for_answer(clients, START_LIMIT, lambda: process.poll() is None)
        asyncio.run(_use(clients))
        process.terminate()
        try:
            process.wait(START_LIMIT)  # to write it takes longer than a broker has for its end
        except subprocess.TimeoutExpired as late:
            raise Unavailable(f"Java did not write it within {START_LIMIT:.0f} s") from late


async def _use(servers: str) -> None:
    """Publish a record and a group's position in a transaction, and read both as the group."""
    topic = TopicPartition("used", 0)
    async with admin_of(servers) as admin:
        await admin.create_topics([NewTopic(topic.topic, 1, 1)])
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="user") as producer:
        for value in (b"1", b"2"):
            async with producer.transaction():
                await producer.send_and_wait(topic.topic, value)
                await producer.send_offsets_to_transaction({topic: 1}, "users")
    group = {"group_id": "users", "isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(topic.topic, bootstrap_servers=servers, **group) as consumer:
        await consumer.getone()


def main() -> int:
    """Run the command of the arguments; return its exit status."""
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-qqq", "-m", "not reference"]
    compiling = subprocess.Popen(collect, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # Java says that it does not use the archive where a program has other classes.
        options = [
            os.environ.get(JAVA_OPTIONS, ""),
            f"-XX:SharedArchiveFile={class_archive()}",
            "-Xlog:cds*=error",
        ]
        os.environ[JAVA_OPTIONS] = " ".join(options)
    except Unavailable as why:
        print(f"no archive of Kafka's classes: {why.reason}")
    try:
        with running_broker(print) as broker:
            compiling.wait()
            environment = os.environ | {SHARED_BROKER: broker.bootstrap_servers}
            return subprocess.run(sys.argv[1:], env=environment, check=False).returncode
    except NoBrokerError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
