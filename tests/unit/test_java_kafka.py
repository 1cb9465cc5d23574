"""Apache Kafka on Java, as the tests start it: clean-up.

No broker is started: Java and Maven are replaced by fakes of a few lines.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import AsyncMock
from xml.etree import ElementTree

import pytest

from knowledgepulse_worker.tools.demo import kafka_node, processes
from knowledgepulse_worker.tools.demo.brokers import first_available
from knowledgepulse_worker.tools.demo.kafka_node import KAFKA_VERSION
from support.java_kafka import JAVA, POM

Script = Callable[[str, str], None]

FAKE_JAVA = """\
case "$*" in
  *-version) echo 'openjdk version "17.0.10" 2024-01-16' >&2 ;;
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


@pytest.mark.parametrize("stubborn", [False, True])
def test_leaves_neither_process_nor_data_behind(program, monkeypatch, pid_file, tmp_path, stubborn):
    """Nor does a terminal's Ctrl-C reach the broker earlier, as it runs in its own session."""
    prepare = "trap '' TERM; " if stubborn else ""
    program("java", FAKE_JAVA.format(broker=f"{prepare}echo $$ > {pid_file}; exec /bin/sleep 600"))
    program("mvn", MAVEN)
    monkeypatch.setattr(processes, "STOP_LIMIT", 0.3)
    monkeypatch.setattr(
        kafka_node,
        "problem_with",
        AsyncMock(
            side_effect=lambda servers: "" if pid_file.exists() and pid_file.read_text() else "refused"
        ),
    )

    with first_available([JAVA], print) as broker:
        pid = int(pid_file.read_text())
        assert os.getsid(pid) == pid
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        assert broker.description == "Apache Kafka 4.4.0 on Java 17 (started here)"

    assert state_of(pid) == ""
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_broker_does_not_outlive_a_killed_parent(program, pid_file, tmp_path):
    program("java", FAKE_JAVA.format(broker=f"echo $$ > {pid_file}; exec /bin/sleep 600"))
    program("mvn", MAVEN)
    code = "from knowledgepulse_worker.tools.demo.brokers import first_available\n"
    code += "from support.java_kafka import JAVA\n"
    code += "with first_available([JAVA], print): pass"
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
    root = ElementTree.parse(POM).getroot()
    versions = [element.text for element in root.iter() if re.fullmatch(r"\{.*\}kafka\.version", element.tag)]

    assert versions == [KAFKA_VERSION]
