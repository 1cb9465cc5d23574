"""`kp-worker publish --hook --spool`: sessions that wait until a broker can be reached."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from knowledgepulse_kafka.errors import DeliveryError, NoBrokerError, TooLargeError
from knowledgepulse_worker.cli import entry
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.publish import publication, publish_command, waiting_files
from knowledgepulse_worker.tools.publish import spool as spool_module
from knowledgepulse_worker.tools.publish.spool import Spool
from support import killed_hooks
from support.hooks import converted_here
from support.memory import traced


@pytest.fixture
def broker(monkeypatch):
    """A broker that keeps what it gets, and fails as told.

    Attributes:
        failure: the error of each connection after some lines are confirmed; None for none.
        confirms: the number of these lines.
        connections: the number of connections.
    """

    class Broker:
        failure, confirms, connections = None, 0, 0
        got: list[bytes] = []  # noqa: RUF012 - one object

    def publish_lines(lines, publisher, limit):
        Broker.connections += 1
        for line in lines:
            if Broker.failure is not None and publisher.published.records == Broker.confirms:
                raise Broker.failure
            Broker.got.append(line)
            publisher.published.records += 1
            publisher.published.confirmed += 1

    Broker.got = []
    Broker.patch = lambda function: [
        monkeypatch.setattr(module, "publish_lines", function) for module in (publication, waiting_files)
    ]
    Broker.patch(publish_lines)
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
def publish(spool, monkeypatch):
    monkeypatch.setattr(publication, "converted_apart", converted_here)
    monkeypatch.setattr(publish_command, "go_on_apart", lambda: None)

    def run(given, *options):
        words = ["publish", "--hook", "--spool", str(spool), *options, "-"]
        return CliRunner().invoke(entry.main, words, input=given)

    return run


LARGE = b"x" * 1_048_577


def publish_file(spool, tmp_path):
    """Publish an empty file, and what waits in the spool."""
    file = tmp_path / "traces.jsonl"
    file.write_text("")
    return CliRunner().invoke(entry.main, ["publish", "--spool", str(spool), str(file)])


def waiting(spool):
    return sorted(path.suffix for path in spool.iterdir())


def test_the_end_of_a_subagent_publishes_its_own_session(publish, broker, session):
    given, own = (json.loads(session(name)) for name in ("s1", "agent-1"))

    publish(json.dumps(given | {"agent_transcript_path": own["transcript_path"]}))

    assert [json.loads(line)["metadata"]["native_id"] for line in broker.got] == ["agent-1"]


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


def test_only_the_traces_of_a_file_that_are_too_large_are_set_aside(publish, broker, tmp_path, spool):
    """One session that was too large set aside the whole file."""
    traces = [json.dumps({"id": f"kp:trace:{number}"}).encode() for number in range(5)]
    lines = [traces[0], LARGE, traces[1], traces[2], LARGE]
    Spool(spool).add(lines)

    done = publish_file(spool, tmp_path)

    assert (done.exit_code, done.output.count("; kept in ")) == (1, 2)
    assert [line.strip() for line in broker.got] == traces[:3]
    assert [path.name.split(".", 1)[1] for path in sorted(spool.iterdir())] == [
        "000002.rejected",
        "000005.rejected",
    ]
    assert {path.read_bytes() for path in spool.iterdir()} == {LARGE + b"\n"}


def test_thousands_of_files_leave_over_one_connection(publish, broker, session, spool):
    """Each had one of its own, so that 15 seconds were over after some hundreds."""
    for number in range(200):
        Spool(spool).add([f'{{"id": "{number}"}}'.encode()])
    assert publish(session("s1")).exit_code == 0
    assert (broker.connections, len(broker.got), waiting(spool)) == (1, 201, [])


def test_what_is_confirmed_before_the_time_is_over_is_not_sent_again(publish, broker, session, spool):
    for number in range(5):
        Spool(spool).add([f'{{"id": "{number}", "line": {line}}}'.encode() for line in range(2)])
    broker.failure, broker.confirms = NoBrokerError("no confirmation in time"), 5

    done = publish(session("s1"))
    broker.failure = None
    publish(session("s2"))

    assert done.output == f"2 files published; no confirmation in time; waiting in {spool}: 4\n"
    assert [json.loads(line).get("id") for line in broker.got[:7]] == ["0", "0", "1", "1", "2", "2", "2"]
    assert (len(broker.got), waiting(spool)) == (5 + 6 + 2, [])


@pytest.fixture
def refusing(broker):
    """Let a broker refuse a trace once a number of later ones are on their way, which it does not confirm."""
    publish_lines = waiting_files.publish_lines

    def refuse(lines, publisher, limit):
        def accepted():
            for line in lines:
                if b"refused" in line:
                    list(itertools.islice(lines, 2))
                    raise TooLargeError("raw-traces: MessageSizeTooLargeError")
                yield line

        publish_lines(accepted(), publisher, limit)

    broker.patch(refuse)


@pytest.mark.parametrize("files", [[["0"], ["refused"], ["2"], ["3"]], [["0", LARGE, "refused", "2", "3"]]])
def test_a_trace_that_the_topic_refuses_is_set_aside_alone(broker, refusing, spool, tmp_path, files):
    """Its whole file was."""
    for file in files:
        Spool(spool).add([line if line is LARGE else json.dumps({"id": line}).encode() for line in file])

    done = publish_file(spool, tmp_path)

    too_large = sum(line in (LARGE, "refused") for file in files for line in file)
    assert (done.exit_code, done.output.count("; kept in ")) == (1, too_large)
    assert [json.loads(line)["id"] for line in broker.got] == ["0", "2", "3"]
    assert waiting(spool) == [".rejected"] * too_large


def test_a_refused_trace_takes_few_connections(broker, refusing, spool, tmp_path):
    """With one for each trace of a file, the time would be over."""
    traces = [json.dumps({"id": str(number)}).encode() for number in range(1000)]
    traces[600] = b'{"id": "refused"}'
    Spool(spool).add(traces)

    publish_file(spool, tmp_path)

    assert [json.loads(line)["id"] for line in broker.got] == [str(n) for n in range(1000) if n != 600]
    assert broker.connections <= 4 * 10
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


@contextmanager
def full_disk():
    """Let no file grow beyond 1,000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_a_full_disk_does_not_take_is_published_all_the_same(broker, spool):
    """Kafka was there, and nothing was published."""
    traces = [json.dumps({"id": f"kp:trace:{number}", "x": "x" * 400}).encode() for number in range(4)]
    words = ["publish", "--spool", str(spool), "-"]

    with full_disk():
        done = CliRunner().invoke(entry.main, words, input=b"\n".join(traces))

    assert [line.strip() for line in broker.got] == traces
    assert done.output.startswith(f"{spool}: cannot be written: File too large\n")
    assert (done.exit_code, waiting(spool)) == (1, [])


def test_a_session_that_finds_no_place_is_published_all_the_same(publish, broker, session, spool):
    hook = session("s1", ask="Fix the tests " * 100)
    with full_disk():
        done = publish(hook)

    assert [json.loads(line)["metadata"]["native_id"] for line in broker.got] == ["s1"]
    assert done.output == f"{spool}: cannot be written: File too large\n"
    assert (done.exit_code, waiting(spool)) == (1, [])


def test_a_session_waits_as_it_is_before_anything_else_can_fail(publish, session, spool):
    hook = session("s1")

    assert publish(hook, "--config", "/nosuch.toml").exit_code != 0

    [kept] = spool.iterdir()
    file = Path(json.loads(hook)["transcript_path"])
    assert (kept.suffix, kept.read_bytes()) == (".session", file.read_bytes())
    assert kept.stat().st_mtime_ns == file.stat().st_mtime_ns


def test_a_session_of_any_size_waits_at_once(session, spool, monkeypatch):
    monkeypatch.setattr(spool_module, "_MAX_COPY", 10)
    file = Path(json.loads(session("s1"))["transcript_path"])

    Spool(spool).keep(file)

    [kept] = spool.iterdir()
    assert kept.samefile(file)


def test_a_session_that_cannot_be_converted_is_kept_and_holds_up_nothing(publish, broker, session, spool):
    hook = session("s1")
    file = Path(json.loads(hook)["transcript_path"])
    file.write_text('{"a": 1}')

    done = publish(hook)

    [kept] = spool.iterdir()
    assert (kept.suffix, kept.read_text()) == (".rejected", '{"a": 1}')
    assert (done.exit_code, done.output.splitlines()[-1]) == (
        1,
        f"{kept.with_suffix('.session')}: not converted; kept in {kept}",
    )
    assert publish(session("s2")).exit_code == 0
    assert len(broker.got) == 1


@pytest.mark.slow
def test_a_hook_that_is_killed_at_any_moment_loses_nothing(tmp_path):
    """The next one publishes its session under the same id, once more if need be."""
    killed = subprocess.run(
        [sys.executable, "-m", "support.killed_hooks", str(tmp_path)],
        cwd=Path(killed_hooks.__file__).parents[1],
        check=True,
        capture_output=True,
    )
    moments = json.loads(killed.stdout)

    safe = [sorted(set(ids)) for was_kept, ids in moments if was_kept]
    assert len(moments) - len(safe) <= 3  # before it has written anything
    assert len(safe) > 10
    assert safe == [["s1", "s2"]] * len(safe)


APART = """
import sys
from knowledgepulse_worker.tools.publish.hook import go_on_apart
go_on_apart()
"""


def test_the_rest_is_done_by_a_process_that_the_agent_does_not_end(tmp_path):
    """Codex ends a hook after 3 seconds."""
    apart, go_on, done = pipes = [str(tmp_path / name) for name in ("apart", "go_on", "done")]
    for pipe in pipes:
        os.mkfifo(pipe)
    rest = (
        f"open({apart!r}, 'w').close(); open({go_on!r}).read()\n"
        f"print('x' * 1_000_000, file=sys.stderr); open({done!r}, 'w').write('done')\n"
    )
    hook = subprocess.Popen(
        [sys.executable, "-c", APART + rest], stderr=subprocess.PIPE, start_new_session=True
    )
    Path(apart).read_text()
    os.killpg(hook.pid, signal.SIGKILL)
    hook.communicate()
    Path(go_on).write_text("")

    assert Path(done).read_text() == "done"


def test_what_the_other_process_prints_and_its_status_are_those_of_the_hook():
    command = [sys.executable, "-c", f"{APART}sys.exit('no topic')"]
    hook = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (hook.returncode, hook.stdout, hook.stderr) == (1, "", "no topic\n")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"spool: cannot be written: Not a directory"):
        Spool(tmp_path / "file" / "spool").add([b"a"])


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("", [], "-: not a hook's input"),
        ("[" * 200_000, [], "-: not a hook's input"),
        ("9" * 5000, [], "-: not a hook's input"),
        ('{"transcript_path": "' + "x" * 2**24 + '"}', [], "-: not a hook's input"),
        ('{"transcript_path": "~nosuchuser/x"}', [], "-: not a hook's input"),
        ('{"transcript_path": "a\\u0000b"}', [], "-: not a hook's input"),
        ('{"transcript_path": "\\ud800"}', [], "-: not a hook's input"),
        ('{"transcript_path": {"a": 1}}', [], "-: not a hook's input"),
        ('{"transcript_path": true}', [], "-: not a hook's input"),
        ('{"transcript_path": "/dev/zero"}', [], "/dev/zero: cannot be read: it is no file"),
        ('{"transcript_path": "/"}', [], "/: cannot be read: it is no file"),
        ('{"transcript_path": "' + "x" * 5000 + '"}', [], "cannot be read: File name too long"),
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
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_where_others_may_write_is_refused(publish, broker, session, spool, mode):
    """They could let anything be published."""
    spool.mkdir(parents=True)
    spool.chmod(mode)
    done = publish(session("s1"))
    assert (done.exit_code, broker.got, waiting(spool)) == (1, [], [])
    assert done.output.startswith(f"Error: {spool}: others may write there")


def test_a_link_to_a_folder_is_refused(publish, broker, session, spool, tmp_path):
    """All of it would be published, and deleted."""
    (tmp_path / "mine").mkdir(mode=0o700)
    spool.parent.mkdir()
    spool.symlink_to(tmp_path / "mine")
    done = publish(session("s1"))
    assert (done.exit_code, done.output) == (1, f"Error: {spool}: is a link; give the spool's own path\n")


def make_folder(path, _private):
    path.mkdir()


def make_link(path, private):
    path.symlink_to(private)


def make_dangling_link(path, _private):
    path.symlink_to(path.parent / "nothing")


def make_pipe(path, _private):
    os.mkfifo(path)


@pytest.mark.parametrize("make", [make_folder, make_link, make_dangling_link, make_pipe])
@pytest.mark.parametrize("suffix", [".jsonl", ".part"])
def test_only_files_are_published_and_what_else_is_there_holds_up_nothing(
    publish, broker, session, spool, tmp_path, make, suffix
):
    (tmp_path / "private").write_text("PRIVATE")
    spool.mkdir(parents=True, mode=0o700)
    make(spool / f"0{suffix}", tmp_path / "private")

    done = publish(session("s1"))

    assert [json.loads(line)["metadata"]["native_id"] for line in broker.got] == ["s1"]
    assert waiting(spool) == [".rejected"]
    if suffix == ".jsonl":
        assert done.exit_code == 1
        assert f"{spool}/0.jsonl: is no file, such as a link or a folder; kept in " in done.output


def test_what_a_killed_hook_left_is_published(publish, broker, session, spool):
    """Its last line may be half written, or all of it be missing."""
    spool.mkdir(parents=True, mode=0o700)
    (spool / "0.part").write_bytes(b'{"a": 1}\n{"b": 2}\n{"c')
    (spool / "1.part").write_bytes(b"")
    publish(session("s1"))
    assert broker.got[:2] == [b'{"a": 1}\n', b'{"b": 2}\n']
    assert len(broker.got) == 3
    assert waiting(spool) == []


def test_what_another_hook_is_writing_is_left_alone(publish, broker, session, spool):
    lines = iter([b"{}"])

    def slow():
        publish(session("s1"))
        assert waiting(spool) == [".part"]
        yield from lines

    Spool(spool).add(slow())
    assert waiting(spool) == [".jsonl"]


def test_a_hook_does_not_wait_for_one_that_publishes(publish, broker, session, spool):
    """Which publishes what was added meanwhile, before it ends."""
    publish_lines, added = waiting_files.publish_lines, []

    def publish_while_another_adds(lines, publisher, limit):
        if not added:
            added.append(publish(session("s2")))
            assert (added[0].exit_code, added[0].output) == (0, "")
        publish_lines(lines, publisher, limit)

    broker.patch(publish_while_another_adds)
    publish(session("s1"))

    assert [json.loads(line)["metadata"]["native_id"] for line in broker.got] == ["s1", "s2"]
    assert waiting(spool) == []


def test_a_trace_is_not_copied_to_wait(spool):
    trace = b"x" * 5_000_000
    with traced() as memory:
        Spool(spool).add([trace])

    [file] = spool.iterdir()
    assert file.read_bytes() == trace + b"\n"
    assert memory.peak < len(trace) / 2
