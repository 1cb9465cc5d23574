"""Apache Kafka brokers that can be killed and restarted with the same data and ports."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any

import trustme

from chaos.clock import Clock
from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.demo.kafka_node import Unavailable, wait_for_answer
from knowledgepulse_worker.tools.demo.processes import LOOPBACK, last_lines
from support.java_kafka import INSTALL_JAVA, VERSION, JavaKafka
from support.secured import write_broker_certificate, write_certificates, write_client_certificate

SESSION_TIMEOUT = 3.0
"""Seconds until the group removes a dead worker; Kafka's minimum is 6."""

ANSWER_LIMIT = 90.0

CLEANUP_INTERVAL_MS = 1000
"""Milliseconds between two checks for transactions that have timed out; Kafka's default is 10 seconds."""

_QUICK_START = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
"""Rather than a high throughput."""

_DISK = 256 * 2**20
"""Bytes of a node's own disk."""


def fill_disk(pid: int) -> None:
    """Keep all files of a process from growing, by a limit on file size, which needs no privileges.

    Writes then fail with EFBIG, instead of ENOSPC on a full disk.
    """
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def free_disk(pid: int) -> None:
    """Let the files of a process grow again."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Node:
    """A Kafka node, broker and controller in one JVM.

    Attributes:
        direct: its address for the tests, unaffected by network faults.
        behind_proxy: its address for a proxy; this listener advertises `proxied`.
        proxied: its address for workers that use the proxy.
    """

    def __init__(self, number: int, folder: Path, stack: ExitStack, clock: Clock | None = None) -> None:
        self.number = number
        self.folder = folder
        self._environment = clock and os.environ | clock.environment
        self._authority: trustme.CA | None = None
        self._has_own_disk = False
        ports = processes.free_ports(4)
        self.direct, self.behind_proxy, self.proxied, self.controller = (f"{LOOPBACK}:{p}" for p in ports)
        self._stack = stack
        self._starts = 0
        self.process: Popen[bytes] | None = None

    def configure(
        self, kafka: JavaKafka, settings: dict[str, str], authority: trustme.CA | None = None
    ) -> None:
        own = {
            "node.id": str(self.number),
            "listeners": f"DIRECT://{self.direct},PROXIED://{self.behind_proxy},CONTROLLER://{self.controller}",
            "advertised.listeners": f"DIRECT://{self.direct},PROXIED://{self.proxied}",
            "log.dirs": str(self.folder / "data"),
        }
        if authority is not None:
            self._authority = authority
            own["ssl.keystore.location"] = str(self.folder / "broker.pem")
        self._command = kafka.formatted(self.folder, settings | own, _QUICK_START)

    def run_release(self, release: str) -> None:
        """Run another release of Kafka from the next start on."""
        self._command = JavaKafka.find(print, release).node(self.folder, _QUICK_START)

    def give_own_disk(self) -> None:
        """Mount a file system in memory for the node's data, which takes root."""
        data = self.folder / "data"
        data.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", data], check=True)
        self._stack.callback(subprocess.run, ["umount", data], check=True)
        self._has_own_disk = True

    def start(self) -> None:
        """Start the JVM, with a new certificate; call from the main thread, as it dies with its thread."""
        if self._authority is not None:
            write_broker_certificate(self._authority, self.folder)
        self._starts += 1
        log = self.folder / f"broker-{self._starts}.log"
        self.process = processes.start(self._stack, self._command, log, self._environment)

    def answered(self) -> None:
        """Wait until the node responds."""
        process, log = self.process, self.folder / f"broker-{self._starts}.log"
        assert process is not None
        wait_for_answer(
            self.direct,
            ANSWER_LIMIT,
            is_running=lambda: process.poll() is None,
            log=lambda: last_lines(log.read_bytes()),
        )

    async def kill(self) -> None:
        """Kill the JVM; unlike in a power failure, writes buffered by the operating system survive."""
        assert self.process is not None
        self.process.kill()
        await asyncio.to_thread(self.process.wait)

    async def stop(self) -> None:
        """Stop the JVM in order, so that other nodes take its partitions over before."""
        assert self.process is not None
        await asyncio.to_thread(processes.stop, self.process)

    async def fill_disk(self) -> None:
        """Fill the node's own disk, or keep its files from growing, upon which Kafka exits; undo it."""
        assert self.process is not None
        if not self._has_own_disk:
            fill_disk(self.process.pid)
            await asyncio.to_thread(self.process.wait)
            return
        ballast = self.folder / "data" / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:  # until no space is left
                file.write(bytes(2**16))
        await asyncio.to_thread(self.process.wait)
        ballast.unlink()

    async def start_again(self) -> None:
        self.start()
        await asyncio.to_thread(self.answered)


class Brokers:
    """One node, or a cluster of three in which a record is confirmed once two have it.

    Attributes:
        login: settings of `kafka` with which workers log in through proxies.
    """

    def __init__(
        self, nodes: list[Node], clock: Clock | None = None, authority: trustme.CA | None = None
    ) -> None:
        self.nodes = nodes
        self.clock = clock
        self._authority = authority
        folder = nodes[0].folder.parent
        self._certificate = folder / "client.pem"
        self.login: dict[str, Any] = {}
        if authority is not None:
            files = {"ssl_cafile": folder / "ca.pem", "ssl_certfile": self._certificate}
            self.login = {"security_protocol": "SSL"} | files
        self.direct = ",".join(node.direct for node in nodes)
        self.proxied = ",".join(node.proxied for node in nodes)

    def renew_certificate(self) -> None:
        """Write a new certificate for the workers, as what renews certificates does."""
        assert self._authority is not None
        write_client_certificate(self._authority, self._certificate)


@contextmanager
def running_brokers(
    count: int,
    release: str = VERSION,
    clock: Clock | None = None,
    *,
    own_disks: bool = False,
    tls: bool = False,
) -> Iterator[Brokers]:
    """Yield running nodes, and stop them afterwards.

    Args:
        count: their number.
        release: the release of Kafka.
        clock: their wall clock; by default, the machine's.
        own_disks: whether each node has a disk of its own, which takes root.
        tls: whether the listener behind proxies asks for certificates.

    Raises:
        NoBrokerError: Java 17 or Maven is missing; the message says how to install them.
    """
    with ExitStack() as stack:
        try:
            kafka = JavaKafka.find(print, release)
            folder = Path(
                stack.enter_context(TemporaryDirectory(prefix="kp-chaos-", ignore_cleanup_errors=True))
            )
            authority = write_certificates(folder) if tls else None
            nodes = []
            for number in range(1, count + 1):
                (folder / str(number)).mkdir()
                nodes.append(Node(number, folder / str(number), stack, clock))
                if own_disks:
                    nodes[-1].give_own_disk()
            for node in nodes:
                node.configure(kafka, _settings(nodes) | (_tls(folder) if tls else {}), authority)
            for node in nodes:
                node.start()
            for node in nodes:
                node.answered()
        except Unavailable as why:
            lines = [f"the chaos tests need Apache Kafka on Java: {why.reason}", *why.details]
            raise NoBrokerError("\n".join([*lines, why.remedy or INSTALL_JAVA])) from why
        yield Brokers(nodes, clock, authority)
        for node in nodes:  # without the others, a node would wait until its partitions have another leader
            node.process.kill()


def _tls(folder: Path) -> dict[str, str]:
    """Return the settings of nodes whose listener behind proxies asks for certificates."""
    return {
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,PROXIED:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
    }


def _settings(nodes: list[Node]) -> dict[str, str]:
    """Return the settings that all nodes share."""
    copies, in_sync = (3, 2) if len(nodes) >= 3 else (1, 1)
    return {
        "process.roles": "broker,controller",
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "DIRECT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{node.number}@{node.controller}" for node in nodes),
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(copies),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(CLEANUP_INTERVAL_MS),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }
