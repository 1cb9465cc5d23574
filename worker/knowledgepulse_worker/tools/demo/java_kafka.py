"""Apache Kafka on Java for the demo and for tests, with jars that Maven downloads once."""

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from knowledgepulse_kafka.diagnosis import problem_with
from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.demo.processes import last_lines

KAFKA_VERSION = "4.1.0"
"""Version of Apache Kafka, in Docker and on Java."""

START_LIMIT = 60.0
"""Seconds until a broker started here must respond."""

_DOWNLOAD_LIMIT = 900.0
_OLDEST_JAVA = 17
_POM = Path(__file__).with_name("kafka-pom.xml")
_CLUSTER_ID = "a25vd2xlZGdlcHVsc2UtZA"  # any 16 bytes in base64, as the data is always new

INSTALL_JAVA = (
    f"install Java {_OLDEST_JAVA}+ and Maven (Debian: apt-get install openjdk-17-jre-headless maven)"
)
"""The advice if :meth:`JavaKafka.find` finds no Java or no Maven."""

Say = Callable[[str], None]
"""Called with a message for each step that takes time."""


class Unavailable(Exception):  # noqa: N818 - a result of trying a kind of broker, not an error
    """A kind of broker is not available; has the reason in one line, a remedy, and log lines."""

    def __init__(self, reason: str, remedy: str | None = None, details: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.details = details


@dataclass(frozen=True)
class JavaKafka:
    """Java and the jars of Kafka.

    Attributes:
        java: the path of the program.
        version: its major version.
        jars: their folder.
    """

    java: str
    version: int
    jars: Path

    @classmethod
    def find(cls, say: Say) -> Self:
        """Find Java, and download the jars on first use; raise Unavailable if that fails."""
        java, version = _find_java()
        return cls(java, version, _kafka_jars(say))

    def formatted(
        self, folder: Path, settings: Mapping[str, str], jvm: Sequence[str], *users: str
    ) -> list[str]:
        """Write a node's settings to an existing folder, format its storage, and return its command.

        ``users``: options of the storage tool that add users.

        Raises:
            Unavailable: the storage cannot be formatted.
        """
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        java = [self.java, *jvm, "-Dorg.apache.logging.log4j.level=WARN", "-cp", str(self.jars / "*")]
        tool = "kafka.tools.StorageTool"
        _run([*java, tool, "format", "-t", _CLUSTER_ID, "-c", str(properties), *users], START_LIMIT, tool)
        return [*java, "kafka.Kafka", str(properties)]


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


def _run(command: Sequence[str], limit: float, what: str) -> str:
    """Run a command and return its output."""
    try:
        done = subprocess.run(  # noqa: S603 - our own commands
            processes.tied_to_us(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} took longer than {limit:.0f} s") from None
    if done.returncode != 0:
        raise Unavailable(f"{what} failed (exit {done.returncode})", details=last_lines(done.stdout))
    return done.stdout


def start_broker(stack: ExitStack, command: Sequence[str], log: Path, servers: str) -> None:
    """Start a broker, which is stopped with the stack, and wait until it responds.

    Raises:
        Unavailable: the broker exits, or does not respond within :data:`START_LIMIT`.
    """
    process = processes.start(stack, command, log)
    wait_for_answer(
        servers,
        START_LIMIT,
        is_running=lambda: process.poll() is None,
        log=lambda: last_lines(log.read_bytes()),
    )


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


def _find_java() -> tuple[str, int]:
    """Return the path and the version of the Java that Maven uses."""
    home = os.environ.get("JAVA_HOME")
    java = (shutil.which("java", path=str(Path(home, "bin"))) if home else None) or shutil.which("java")
    if java is None:
        raise Unavailable("java is not on the PATH")
    answer = _run([java, "-version"], START_LIMIT, "java -version")
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    if found is None:
        raise Unavailable(f"{java} does not print its version", details=last_lines(answer))
    version = int(found[1])
    if version < _OLDEST_JAVA:
        raise Unavailable(f"{java} is Java {version}, Kafka needs {_OLDEST_JAVA} or later")
    return java, version


def _kafka_jars(say: Say) -> Path:
    """Return the folder with Kafka's jars, downloading them on first use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "knowledgepulse-worker")
    jars = cache / f"kafka-{KAFKA_VERSION}"
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("mvn is not on the PATH")
    say(f"downloading Apache Kafka {KAFKA_VERSION} (44 MB, once)")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{jars.name}.", dir=cache) as unfinished:
        copied = Path(unfinished, "jars")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={copied}"]
        _run([maven, "-B", "-q", "-f", str(_POM), *goal], _DOWNLOAD_LIMIT, "downloading it with Maven")
        _move_into_place(copied, jars)
    return jars


def _move_into_place(folder: Path, target: Path) -> None:
    """Rename atomically, so that `target` is never incomplete; another process may have been faster."""
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
