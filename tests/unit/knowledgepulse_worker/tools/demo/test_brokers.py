"""Selection of a broker, errors if none is available, and clean-up.

No broker is started: Java, Maven and Docker are replaced by fakes of a few lines.
"""

import os
import re
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock
from xml.etree import ElementTree

import pytest

from knowledgepulse_kafka.errors import NoBrokerError
from knowledgepulse_worker.tools.demo import brokers, java_kafka, processes
from knowledgepulse_worker.tools.demo.brokers import (
    Broker,
    Kind,
    Unavailable,
    first_available,
    running_broker,
)

ANSWERING = Broker("127.0.0.1:1", "java", "a broker")


class Recorder:
    """Return a factory of kinds that record their events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def kind(self, name: str, error: Exception | None = None) -> Kind:
        def start(stack: ExitStack, say: java_kafka.Say) -> Broker:
            self.events.append(f"start {name}")
            stack.callback(self.events.append, f"stop {name}")
            say("starting")
            if error is not None:
                raise error
            return ANSWERING

        return Kind(name, f"install {name}", start)


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
    ("allow_embedded", "tried"),
    [
        (False, ["start CONFIGURED", "start DOCKER", "start JAVA"]),
        (True, ["start CONFIGURED", "start DOCKER", "start JAVA", "start EMBEDDED"]),
    ],
)
def test_prefers_real_kafka_and_uses_the_embedded_broker_only_if_allowed(
    recorder, monkeypatch, allow_embedded, tried
):
    for name in ("EMBEDDED", "JAVA", "DOCKER", "CONFIGURED"):
        monkeypatch.setattr(brokers, name, recorder.kind(name, Unavailable("no")))

    with pytest.raises(NoBrokerError), running_broker(allow_embedded=allow_embedded, say=print):
        pass

    assert [event for event in recorder.events if event.startswith("start")] == tried


# --- configured


def start(kind: Kind, say: java_kafka.Say = print) -> Broker:
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
    monkeypatch.setattr(java_kafka, "problem_with", AsyncMock(return_value=""))

    broker = start(brokers.DOCKER)

    host, port = broker.bootstrap_servers.split(":")
    environment = dict(call.args for call in container.with_env.call_args_list)
    assert container.ports == {"9092": (host, int(port))}
    assert host == "127.0.0.1"
    assert environment["KAFKA_ADVERTISED_LISTENERS"].startswith(f"CLIENTS://{broker.bootstrap_servers},")
    assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert container.stop.called


def test_a_container_that_exits_during_the_start_reports_its_log(container, monkeypatch):
    monkeypatch.setattr(java_kafka, "problem_with", AsyncMock(return_value="refused"))
    container.get_wrapped_container.return_value.status = "exited"

    with pytest.raises(Unavailable, match="the broker exited during its start") as raised:
        start(brokers.DOCKER)

    assert raised.value.details == ["out", "boom"]
    assert container.stop.called


# --- Java

Script = Callable[[str, str], None]

JAVA = """\
case "$*" in
  *-version) echo 'openjdk version "{version}" 2024-01-16' >&2 ;;
  *StorageTool*) {storage_tool} ;;
  *kafka.Kafka*) {broker} ;;
esac
"""
MAVEN = """\
for argument; do case "$argument" in -DoutputDirectory=*) folder=${argument#*=};; esac; done
/bin/mkdir -p "$folder" && echo jar > "$folder/kafka.jar"
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Return a function that puts shell scripts on an otherwise empty PATH."""
    for name in ("bin", "cache", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def install(name: str, text: str) -> None:
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)

    return install


def fake_java(version: str = "17.0.10", storage_tool: str = ":", broker: str = "exec /bin/sleep 600") -> str:
    return JAVA.format(version=version, storage_tool=storage_tool, broker=broker)


def state_of(pid: int) -> str:
    """Return Linux's state letter of a process; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.fixture
def pid_file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "pid"
    yield path
    if path.exists() and state_of(int(path.read_text())) not in ("", "Z"):
        os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("scripts", "reason"),
    [
        ({}, "java is not on the PATH"),
        ({"java": fake_java("1.8.0_402")}, "java is Java 8, Kafka needs 17 or later"),
        ({"java": fake_java("11.0.22")}, "java is Java 11, Kafka needs 17 or later"),
        ({"java": "echo hello"}, "does not print its version"),
        ({"java": "exit 2"}, r"java -version failed \(exit 2\)"),
        ({"java": fake_java()}, "mvn is not on the PATH"),
        ({"java": fake_java(), "mvn": "exit 1"}, r"Maven failed \(exit 1\)"),
        (
            {"java": fake_java(storage_tool="exit 3"), "mvn": MAVEN},
            r"kafka.tools.StorageTool failed \(exit 3\)",
        ),
    ],
)
def test_an_unusable_java_is_unavailable_with_the_reason(program, scripts, reason):
    for name, text in scripts.items():
        program(name, text)

    with pytest.raises(Unavailable, match=reason):
        start(brokers.JAVA)


def test_downloads_kafka_once(program, tmp_path):
    program("java", fake_java(storage_tool="exit 3"))
    program("mvn", MAVEN)
    said: list[str] = []
    with pytest.raises(Unavailable, match="StorageTool"):
        start(brokers.JAVA, said.append)
    (tmp_path / "bin" / "mvn").unlink()
    with pytest.raises(Unavailable, match="StorageTool"):
        start(brokers.JAVA, said.append)

    assert said == ["downloading Apache Kafka 4.1.0 (44 MB, once)"]
    files = (tmp_path / "cache").rglob("*.jar")
    assert [str(file.relative_to(tmp_path)) for file in files] == [
        "cache/knowledgepulse-worker/kafka-4.1.0/kafka.jar"
    ]


def test_a_failed_download_leaves_no_incomplete_jars(program, tmp_path):
    program("java", fake_java())
    program("mvn", f"{MAVEN}printf '\\033[0m[ERROR] no network\\n\\033[0m\\n'; exit 1\n")

    with pytest.raises(Unavailable, match="Maven failed") as raised:
        start(brokers.JAVA)

    assert raised.value.details == ["[ERROR] no network"]

    assert list((tmp_path / "cache" / "knowledgepulse-worker").iterdir()) == []


def test_a_broker_that_dies_reports_its_last_log_lines(program):
    lines = [f"line {number}" for number in range(40)]
    program("java", fake_java(broker="; ".join(f"echo {line}" for line in lines)))
    program("mvn", MAVEN)

    with pytest.raises(Unavailable, match="the broker exited during its start") as raised:
        start(brokers.JAVA)

    assert raised.value.details == lines[-15:]


@pytest.mark.parametrize("stubborn", [False, True])
def test_leaves_neither_process_nor_data_behind(program, monkeypatch, pid_file, tmp_path, stubborn):
    """Nor does a terminal's Ctrl-C reach the broker earlier, as it runs in its own session."""
    prepare = "trap '' TERM; " if stubborn else ""
    program("java", fake_java(broker=f"{prepare}echo $$ > {pid_file}; exec /bin/sleep 600"))
    program("mvn", MAVEN)
    monkeypatch.setattr(processes, "STOP_LIMIT", 0.3)
    monkeypatch.setattr(
        java_kafka,
        "problem_with",
        AsyncMock(
            side_effect=lambda servers: "" if pid_file.exists() and pid_file.read_text() else "refused"
        ),
    )

    with first_available([brokers.JAVA], print) as broker:
        pid = int(pid_file.read_text())
        assert os.getsid(pid) == pid
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        assert broker.description == "Apache Kafka 4.1.0 on Java 17 (started here)"

    assert state_of(pid) == ""
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_broker_does_not_outlive_a_killed_parent(program, pid_file, tmp_path):
    program("java", fake_java(broker=f"echo $$ > {pid_file}; exec /bin/sleep 600"))
    program("mvn", MAVEN)
    code = "from knowledgepulse_worker.tools.demo import brokers\n"
    code += "with brokers.first_available([brokers.JAVA], print): pass"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
        process.kill()

    wait_until(lambda: state_of(int(pid_file.read_text())) in ("", "Z"))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_the_pom_has_the_announced_version():
    root = ElementTree.parse(Path(brokers.__file__).with_name("kafka-pom.xml")).getroot()
    versions = [element.text for element in root.iter() if re.fullmatch(r"\{.*\}kafka\.version", element.tag)]

    assert versions == [brokers.KAFKA_VERSION]
