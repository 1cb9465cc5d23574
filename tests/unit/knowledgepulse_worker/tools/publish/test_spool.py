"""`kp-worker publish --hook --spool`: sessions that wait until a broker can be reached."""

from __future__ import annotations

import json
import stat

import pytest
from click.testing import CliRunner

from knowledgepulse_worker.cli import entry
from knowledgepulse_worker.errors import DeliveryError, InputError, NoBrokerError, TooLargeError
from knowledgepulse_worker.tools.publish import command
from knowledgepulse_worker.tools.publish.spool import Spool


@pytest.fixture
def broker(monkeypatch):
    """A broker that keeps what it gets, and fails as told."""

    class Broker:
        failure = None
        got: list[bytes] = []  # noqa: RUF012 - one object

    def publish_lines(lines, publisher):
        lines = list(lines)
        if Broker.failure is not None:
            raise Broker.failure
        Broker.got += lines

    Broker.got = []
    monkeypatch.setattr(command, "publish_lines", publish_lines)
    return Broker


@pytest.fixture
def session(tmp_path):
    def write(name, ask="Fix the tests"):
        lines = [
            {"type": "user", "uuid": "1", "parentUuid": None, "sessionId": name, "message": {"content": ask}},
            {
                "type": "assistant",
                "uuid": "2",
                "parentUuid": "1",
                "sessionId": name,
                "message": {"content": "Done"},
            },
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)))
        return json.dumps({"hook_event_name": "SessionEnd", "transcript_path": str(path), "reason": "other"})

    return write


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "below" / "spool"


@pytest.fixture
def publish(spool):
    def run(given, *options):
        words = ["publish", "--hook", "--spool", str(spool), *options, "-"]
        return CliRunner().invoke(entry.main, words, input=given)

    return run


def waiting(spool):
    return sorted(path.suffix for path in spool.iterdir())


def test_a_hook_publishes_the_session_that_it_names_and_prints_nothing(publish, broker, session, spool):
    done = publish(session("s1"))

    assert (done.exit_code, done.output) == (0, "")
    assert [json.loads(line)["metadata"]["native_id"] for line in broker.got] == ["s1"]
    assert waiting(spool) == []


def test_sessions_wait_for_a_broker_in_order_and_are_published_first(publish, broker, session, spool):
    broker.failure = NoBrokerError("kafka.bootstrap_servers: localhost:9092: refused")
    for number in range(2):
        done = publish(session(f"s{number}"))
        assert done.exit_code == 0
        assert done.output == (
            f"kafka.bootstrap_servers: localhost:9092: refused; waiting in {spool}: {number + 1}\n"
        )
    broker.failure = None
    publish(session("s2"))

    assert [json.loads(line)["metadata"]["native_id"] for line in broker.got] == ["s0", "s1", "s2"]
    assert waiting(spool) == []


def test_what_is_too_large_is_kept_and_holds_up_nothing(publish, broker, session, spool):
    broker.failure = TooLargeError("raw-traces: MessageSizeTooLargeError")
    done = publish(session("s1"))
    broker.failure = None

    assert done.exit_code == 1
    assert done.output.startswith("raw-traces: MessageSizeTooLargeError; kept in ")
    assert publish(session("s2")).exit_code == 0
    assert len(broker.got) == 1
    assert waiting(spool) == [".rejected"]


def test_what_fails_otherwise_waits(publish, broker, session, spool):
    """A topic may be created, a login corrected."""
    broker.failure = DeliveryError("raw-traces: UnknownTopicOrPartitionError")
    assert publish(session("s1")).exit_code == 1

    assert waiting(spool) == [".jsonl"]


def test_only_its_owner_reads_the_spool(publish, broker, session, spool):
    broker.failure = NoBrokerError("away")
    publish(session("s1"))

    [file] = spool.iterdir()
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_is_whole_or_not_there(spool):
    def lines():
        yield b"a"
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        Spool(spool).add(lines())
    assert waiting(spool) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"spool: cannot be written: Not a directory"):
        Spool(tmp_path / "file" / "spool").add([b"a"])


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("", [], "-: not a hook's input"),
        ('{"transcript_path": null}', [], "-: not a hook's input"),
        ('{"transcript_path": "/none.jsonl"}', [], "/none.jsonl: cannot be read: No such file"),
        ("{}", ["--skip", "1"], "-: not a hook's input"),
        (
            '{"transcript_path": "/none.jsonl"}',
            ["--skip", "1"],
            "--spool goes with neither --skip nor --dry-run",
        ),
    ],
)
def test_bad_input_is_one_clear_line(publish, broker, given, options, message):
    done = publish(given, *options)

    assert done.exit_code != 0
    assert message in done.output
    assert "Traceback" not in done.output
