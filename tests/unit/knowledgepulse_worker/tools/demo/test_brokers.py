"""Selection of a broker, errors if none is available, and clean-up.

No broker is started: Docker is replaced by a fake of a few lines.
"""

import sys
import types
from contextlib import ExitStack
from unittest.mock import AsyncMock, MagicMock

import pytest

from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.tools.demo import brokers, kafka_node
from knowledgepulse_worker.tools.demo.brokers import (
    Broker,
    BrokerKind,
    Unavailable,
    first_available,
)
from support import java_kafka

ANSWERING = Broker("127.0.0.1:1", "started", "a broker")


class Recorder:
    """Return a factory of kinds that record their events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def kind(self, name: str, error: Exception | None = None) -> BrokerKind:
        def start(stack: ExitStack, say: kafka_node.MessageCallback) -> Broker:
            self.events.append(f"start {name}")
            stack.callback(self.events.append, f"stop {name}")
            say("starting")
            if error is not None:
                raise error
            return ANSWERING

        return BrokerKind(name, f"install {name}", start)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


# --- the order


def test_uses_the_first_available_kind_and_starts_no_other(recorder):
    said: list[str] = []
    kinds = [recorder.kind("A", Unavailable("no A here")), recorder.kind("B"), recorder.kind("C")]

    with first_available(kinds, said.append) as broker:
        assert broker is ANSWERING
        assert recorder.events == ["start A", "stop A", "start B"]

    assert recorder.events[-1] == "stop B"
    assert said == ["A: starting", "A: not available: no A here", "B: starting"]


@pytest.mark.parametrize("end", [ValueError, KeyboardInterrupt])
def test_stops_the_broker_however_the_context_exits(recorder, end):
    with pytest.raises(end), first_available([recorder.kind("A")], print):
        raise end

    assert recorder.events == ["start A", "stop A"]


def test_the_error_lists_all_reasons_and_remedies():
    recorder = Recorder()
    kinds = [
        recorder.kind("A", Unavailable("no A here")),
        recorder.kind("B", Unavailable("it ended", details=["line 1", "line 2"])),
        recorder.kind("C", Unavailable("too old", remedy="install B")),
        recorder.kind("D", PermissionError(13, "Permission denied", "/cache")),
    ]

    with pytest.raises(NoBrokerError) as raised, first_available(kinds, print):
        pass

    assert str(raised.value).splitlines() == [
        "no Kafka broker is available:",
        "  A: no A here",
        "  B: it ended",
        "    | line 1",
        "    | line 2",
        "  C: too old",
        "  D: [Errno 13] Permission denied: '/cache'",
        "any one of these would help:",
        "  - install A",
        "  - install B",
        "  - install D",
    ]


@pytest.mark.parametrize(
    ("running", "tried"),
    [
        (brokers.running_broker, ["start CONFIGURED", "start DOCKER", "start EMBEDDED"]),
        (java_kafka.running_broker, ["start CONFIGURED", "start DOCKER", "start JAVA"]),
    ],
)
def test_the_demo_may_use_the_embedded_broker_and_the_tests_only_kafka(recorder, monkeypatch, running, tried):
    for place, name in [
        (brokers, "CONFIGURED"),
        (brokers, "DOCKER"),
        (brokers, "EMBEDDED"),
        (java_kafka, "CONFIGURED"),
        (java_kafka, "DOCKER"),
        (java_kafka, "JAVA"),
    ]:
        monkeypatch.setattr(place, name, recorder.kind(name, Unavailable("no")))

    with pytest.raises(NoBrokerError), running(print):
        pass

    assert [event for event in recorder.events if event.startswith("start")] == tried


# --- configured


def start(kind: BrokerKind, say: kafka_node.MessageCallback = print) -> Broker:
    with ExitStack() as stack:
        return kind.start(stack, say)


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "127.0.0.1:1,localhost:1", "127.0.0.1:kafka"])
def test_an_unresponsive_configured_broker_is_unavailable(monkeypatch, caplog, servers):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", servers)
    monkeypatch.setattr(brokers, "_CONFIGURED_LIMIT", 0.2)

    with pytest.raises(Unavailable, match=r"no response within 0 s: .+"):
        start(brokers.CONFIGURED)

    assert not caplog.records, "the client's own log of the attempts is not for the reader"


# --- Docker


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """The container that a running engine would start."""
    container = MagicMock(ports={}, **{"get_logs.return_value": (b"out\n", b"boom\n")})
    client = MagicMock(**{"return_value.host.return_value": "localhost"})
    engine = {"DockerClient": client, "get_docker_host": lambda: "tcp://localhost:2375"}
    monkeypatch.setitem(
        sys.modules, "testcontainers.core.container", MagicMock(**{"DockerContainer.return_value": container})
    )
    monkeypatch.setitem(sys.modules, "testcontainers.core.docker_client", types.SimpleNamespace(**engine))
    return container


def test_publishes_the_container_on_loopback_at_its_advertised_port(container, monkeypatch):
    monkeypatch.setattr(kafka_node, "problem_with", AsyncMock(return_value=""))

    broker = start(brokers.DOCKER)

    host, port = broker.bootstrap_servers.split(":")
    environment = dict(call.args for call in container.with_env.call_args_list)
    assert container.ports == {"9092": (host, int(port))}
    assert host == "127.0.0.1"
    assert environment["KAFKA_ADVERTISED_LISTENERS"].startswith(f"CLIENTS://{broker.bootstrap_servers},")
    assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert container.stop.called


def test_a_container_that_exits_during_the_start_reports_its_log(container, monkeypatch):
    monkeypatch.setattr(kafka_node, "problem_with", AsyncMock(return_value="refused"))
    container.get_wrapped_container.return_value.status = "exited"

    with pytest.raises(Unavailable, match="the broker exited during its start") as raised:
        start(brokers.DOCKER)

    assert raised.value.details == ["out", "boom"]
    assert container.stop.called
