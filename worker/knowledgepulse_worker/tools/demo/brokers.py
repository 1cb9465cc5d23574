"""Find a Kafka broker or start a temporary one, for `make demo`.

The first available of:

1. the broker at `KAFKA_BOOTSTRAP_SERVERS`, which is left unchanged;
2. Apache Kafka in Docker;
3. noida-db, a small broker from PyPI. It never removes killed consumers from their groups, so their
   partitions are not reassigned: the tests, which kill workers, start Apache Kafka on Java instead.

    with running_broker(print) as broker:
        print(broker.bootstrap_servers)
"""

import contextlib
import importlib.metadata
import importlib.resources
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.extras import how_to_install
from knowledgepulse_worker.tools.demo import processes
from knowledgepulse_worker.tools.demo.kafka_node import (
    KAFKA_VERSION,
    START_LIMIT,
    MessageCallback,
    Unavailable,
    node_settings,
    start_broker,
    wait_for_answer,
)
from knowledgepulse_worker.tools.demo.processes import LOOPBACK, last_lines

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_CONFIGURED_LIMIT = 10.0  # enough for a broker that Compose has just started
_DOCKER_PING_LIMIT = 2.0

_IMAGE = f"apache/kafka:{KAFKA_VERSION}"

_INSTALL_EXTRA = how_to_install("demo")


@dataclass(frozen=True)
class Broker:
    """A running broker.

    Attributes:
        bootstrap_servers: its address.
        kind: whether it was running already, or was started here.
        description: what it is, in words.
        is_running: whether it still runs, if it was started here.
    """

    bootstrap_servers: str
    kind: Literal["configured", "started"]
    description: str
    is_running: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class BrokerKind:
    """A kind of broker; `start` adds its clean-up to the stack, or raises Unavailable."""

    name: str
    remedy: str
    start: Callable[[ExitStack, MessageCallback], Broker]


def running_broker(say: MessageCallback) -> AbstractContextManager[Broker]:
    """Return a context with a running broker, which is stopped afterwards if it was started here.

    On Linux, the broker also dies with the *thread* that entered, which must therefore outlive the context.

    Raises:
        NoBrokerError: no kind of broker is available.
    """
    return first_available([CONFIGURED, DOCKER, EMBEDDED], say)


@contextmanager
def first_available(kinds: Sequence[BrokerKind], say: MessageCallback) -> Iterator[Broker]:
    """Yield a broker of the first available kind.

    Raises:
        NoBrokerError: none is available; the message has the reasons of all kinds.
    """
    failures: list[tuple[BrokerKind, Unavailable]] = []
    for kind in kinds:
        with ExitStack() as stack:
            try:
                broker = kind.start(stack, _prefixed(kind.name, say))
            except Unavailable as why:
                failures.append((kind, why))
            except OSError as error:
                failures.append((kind, Unavailable(_first_line(error))))
            else:
                yield broker
                return
        say(f"{kind.name}: not available: {failures[-1][1].reason}")
    raise NoBrokerError(_explain(failures))


def _prefixed(name: str, say: MessageCallback) -> MessageCallback:
    return lambda line: say(f"{name}: {line}")


def _explain(failures: Sequence[tuple[BrokerKind, Unavailable]]) -> str:
    lines = ["no Kafka broker is available:"]
    for kind, why in failures:
        lines.append(f"  {kind.name}: {why.reason}")
        lines += [f"    | {line}" for line in why.details]
    lines.append("any one of these would help:")
    lines += dict.fromkeys(f"  - {why.remedy or kind.remedy}" for kind, why in failures)
    return "\n".join(lines)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# --- configured


def _find_configured(stack: ExitStack, say: MessageCallback) -> Broker:
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "").strip()
    if not servers:
        raise Unavailable("KAFKA_BOOTSTRAP_SERVERS is not set")
    say(f"connecting to {servers}")
    wait_for_answer(servers, _CONFIGURED_LIMIT)
    return Broker(servers, "configured", f"the broker at {servers} (already running)")


# --- Docker


def _start_docker(stack: ExitStack, say: MessageCallback) -> Broker:
    try:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - needs an extra
    except ImportError:
        raise Unavailable("testcontainers is not installed", _INSTALL_EXTRA) from None
    host = _docker_host()
    port, *_ = processes.free_ports(1)
    servers = f"{host}:{port}"
    say(f"starting {_IMAGE} (the image is downloaded the first time)")
    try:
        container = DockerContainer(_IMAGE)
        _publish(container, host, port)
        stack.callback(container.stop)
        container.start()
        is_running = partial(_container_is_running, container)
        wait_for_answer(
            servers,
            START_LIMIT,
            is_running,
            log=lambda: last_lines(b"".join(container.get_logs())),
        )
    except Unavailable:
        raise
    except Exception as error:  # docker's, requests' and testcontainers' errors share no base class
        raise Unavailable(f"{_IMAGE} did not start", details=[_first_line(error)]) from error
    say(f"started on {servers}")
    description = f"Apache Kafka {KAFKA_VERSION} in Docker (started here)"
    return Broker(servers, "started", description, is_running)


def _docker_host() -> str:
    """Return the address of published ports, after checking that an engine responds."""
    from testcontainers.core.docker_client import DockerClient, get_docker_host  # noqa: PLC0415 - as above

    engine = get_docker_host() or "unix:///var/run/docker.sock"
    try:
        _connect_if_unix(engine)
        # The default timeout of a minute is meant for pulling images, not for checking the engine.
        client = DockerClient(timeout=_DOCKER_PING_LIMIT)
        with contextlib.closing(client.client):
            client.client.ping()
            host = client.host()
    except Exception as error:  # as above, no common base class
        raise Unavailable(f"no engine responds at {engine}", details=[_first_line(error)]) from error
    return LOOPBACK if host == "localhost" else host


def _connect_if_unix(engine: str) -> None:
    """Fail with a plain OSError, which docker-py would wrap five times, leaving its socket open."""
    scheme, _, path = engine.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_DOCKER_PING_LIMIT)
            connection.connect(path)


def _publish(container: "DockerContainer", host: str, port: int) -> None:
    """Publish the clients' listener at a fixed port, since the broker must advertise it."""
    # A port without an address would be published on all interfaces, and the broker has no authentication.
    container.ports["9092"] = (LOOPBACK, port) if host == LOOPBACK else port  # type: ignore[assignment]
    settings = node_settings(
        clients="0.0.0.0:9092",
        advertised=f"{host}:{port}",
        broker="localhost:19092",
        controller="localhost:19093",
    )
    for name, value in settings.items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)


def _container_is_running(container: "DockerContainer") -> bool:
    docker_container = container.get_wrapped_container()
    docker_container.reload()
    return bool(docker_container.status == "running")


# --- embedded


def _start_embedded(stack: ExitStack, say: MessageCallback) -> Broker:
    program = _noida_program()
    folder = temporary_folder(stack)
    port, *_ = processes.free_ports(1)
    servers = f"{LOOPBACK}:{port}"
    command = [str(program), "start", "--only", "kafka", "--host", LOOPBACK, "--kafka-port", str(port)]
    command += ["--data-dir", str(folder / "data")]
    is_running = start_broker(stack, command, folder / "broker.log", servers)
    say(f"started on {servers}")
    version = importlib.metadata.version("noida-db")
    description = f"noida-db {version} (started here, as Apache Kafka is not available)"
    return Broker(servers, "started", description, is_running)


def _noida_program() -> Path:
    """Return the program in the package; the `noida-db` script would not forward our signals."""
    try:
        folder = importlib.resources.files("noida_db")
    except ModuleNotFoundError:
        raise Unavailable("noida-db is not installed") from None
    program = Path(str(folder), "noida-db.exe" if os.name == "nt" else "noida-db")
    if not program.is_file():
        raise Unavailable(f"noida-db has no program for this machine: {program}")
    if not os.access(program, os.X_OK):
        program.chmod(0o755)
    return program


def temporary_folder(stack: ExitStack) -> Path:
    """Return a new folder, which is removed with the stack."""
    folder = tempfile.TemporaryDirectory(prefix="knowledgepulse-broker-", ignore_cleanup_errors=True)
    return Path(stack.enter_context(folder))


CONFIGURED = BrokerKind(
    "Configured broker", "set KAFKA_BOOTSTRAP_SERVERS (host:port) to a running broker", _find_configured
)
DOCKER = BrokerKind("Docker", "install and start Docker", _start_docker)
EMBEDDED = BrokerKind("Embedded broker", _INSTALL_EXTRA, _start_embedded)
