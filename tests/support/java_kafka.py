"""Apache Kafka on Java for the tests, with jars that Maven downloads once."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.demo.brokers import (
    CONFIGURED,
    DOCKER,
    Broker,
    BrokerKind,
    first_available,
    temporary_folder,
)
from knowledgepulse_worker.tools.demo.kafka_node import (
    KAFKA_VERSION,
    START_LIMIT,
    MessageCallback,
    Unavailable,
    node_settings,
    start_broker,
)
from knowledgepulse_worker.tools.demo.processes import LOOPBACK, last_lines

_DOWNLOAD_LIMIT = 900.0
_OLDEST_JAVA = 17
POM = Path(__file__).parents[1] / "data" / "kafka-pom.xml"
"""The dependencies of the jars."""

VERSION = os.environ.get("TESTS_KAFKA_VERSION", KAFKA_VERSION)
"""The release of Kafka; by default, the demo's."""

_CLUSTER_ID = "a25vd2xlZGdlcHVsc2UtZA"  # any 16 bytes in base64, as the data is always new

INSTALL_JAVA = (
    f"install Java {_OLDEST_JAVA}+ and Maven (Debian: apt-get install openjdk-17-jre-headless maven)"
)
"""The advice if :meth:`JavaKafka.find` finds no Java or no Maven."""


def running_broker(say: MessageCallback) -> AbstractContextManager[Broker]:
    """Return a context with a running Kafka: the configured one, or else one in Docker or on Java.

    Raises:
        NoBrokerError: none is available.
    """
    return first_available([CONFIGURED, DOCKER, JAVA], say)


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
    def find(cls, say: MessageCallback, release: str = VERSION) -> Self:
        """Find Java, and download a release's jars on first use; raise Unavailable if that fails."""
        java, version = _find_java()
        return cls(java, version, _kafka_jars(say, release))

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
        tool = "kafka.tools.StorageTool"
        format_it = [*self._program(jvm), tool, "format", "-t", _CLUSTER_ID, "-c", str(properties), *users]
        _run(format_it, START_LIMIT, tool)
        return self.node(folder, jvm)

    def node(self, folder: Path, jvm: Sequence[str]) -> list[str]:
        """Return the command of a node whose storage is formatted, perhaps by another release."""
        return [*self._program(jvm), "kafka.Kafka", str(folder / "server.properties")]

    def _program(self, jvm: Sequence[str]) -> list[str]:
        return [self.java, *jvm, "-Dorg.apache.logging.log4j.level=WARN", "-cp", str(self.jars / "*")]


def _run(command: Sequence[str], limit: float, what: str) -> str:
    """Run a command and return its output."""
    try:
        done = subprocess.run(
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


def _start_java(stack: ExitStack, say: MessageCallback) -> Broker:
    kafka = JavaKafka.find(say)
    folder = temporary_folder(stack)
    port, broker_port, controller_port = processes.free_ports(3)
    servers = f"{LOOPBACK}:{port}"
    settings = node_settings(
        clients=servers,
        advertised=servers,
        broker=f"{LOOPBACK}:{broker_port}",
        controller=f"{LOOPBACK}:{controller_port}",
    )
    command = kafka.formatted(folder, settings | {"log.dirs": (folder / "data").as_posix()}, ["-Xmx768m"])
    start_broker(stack, command, folder / "broker.log", servers)
    say(f"started on {servers}")
    return Broker(servers, "started", f"Apache Kafka {VERSION} on Java {kafka.version} (started here)")


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


def _kafka_jars(say: MessageCallback, release: str) -> Path:
    """Return the folder with a release's jars, downloading them on first use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "knowledgepulse-worker")
    jars = cache / f"kafka-{release}"
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("mvn is not on the PATH")
    say(f"downloading Apache Kafka {release} (44 MB, once)")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{jars.name}.", dir=cache) as unfinished:
        copied = Path(unfinished, "jars")
        goal = [
            *("dependency:copy-dependencies", "-DincludeScope=runtime"),
            *(f"-DoutputDirectory={copied}", f"-Dkafka.version={release}"),
        ]
        _run([maven, "-B", "-q", "-f", str(POM), *goal], _DOWNLOAD_LIMIT, "downloading it with Maven")
        _move_into_place(copied, jars)
    return jars


def _move_into_place(folder: Path, target: Path) -> None:
    """Rename atomically, so that `target` is never incomplete; another process may have been faster."""
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise


JAVA = BrokerKind("Java + Maven", INSTALL_JAVA, _start_java)
"""Kafka on Java."""
