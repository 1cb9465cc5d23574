"""The supervisor: what it restarts, what it kills, and when it gives up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from knowledgepulse_kafka import reaching
from knowledgepulse_kafka.errors import NoBrokerError, SecurityError
from knowledgepulse_worker.errors import SettingsError, StartError, WorkerError, exit_status_of
from knowledgepulse_worker.http import server
from knowledgepulse_worker.process import supervisor as supervise
from knowledgepulse_worker.process.supervisor import Supervisor
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.demo.processes import free_ports
from support.waits import eventually

# Each start adds a line to its first argument, then does what the line's number says.
PROCESS = """\
import os, signal, sys, time
starts, heartbeat, socket = sys.argv[1], int(sys.argv[-3]), sys.argv[-1]
with open(starts, "a") as file:
    file.write(f"{os.getpid()}\\n")
start = len(open(starts).readlines())
READY = b'{"reasons": [], "findings": [{"state": "healthy"}]}\\n'
def works():
    open(starts + ".works", "w").close()
def beat(seconds):
    for _ in range(round(seconds / 0.01)):
        os.write(heartbeat, b'{"reasons": ["not yet"], "findings": [{"state": "healthy"}]}\\n')
        time.sleep(0.01)
"""


def is_in(state):
    """Return the line of the metrics page for the state that a worker is in."""
    return f'kp_state{{state="{state}",group="knowledgepulse-worker"}} 1.0'


LIMITS = (
    reaching.CONNECT_LIMIT,
    reaching.ANSWER_LIMIT,
    reaching.HANDSHAKE_LIMIT,
    supervise.PROBE_LIMIT,
)


def test_what_waits_for_less_gives_up_sooner():
    """A probe gave up before the connections that it waited for, so that it never named the dead servers."""
    settings = Settings()
    limits = [*LIMITS, settings.kafka.request_timeout, settings.limits.stall]

    assert limits == sorted(set(limits))


async def test_limits_out_of_order_are_logged(tmp_path, caplog):
    here = Supervised(tmp_path, f"sys.exit({StartError.exit_status})", stall=20)

    await here.run()

    assert "limits.stall, 20 s, should be more than kafka.request_timeout, 30 s: " in caplog.text
    assert "the probe of a broker" not in caplog.text


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """A broker that answers, and intervals of ten milliseconds."""
    monkeypatch.setattr(supervise, "HEARTBEAT_INTERVAL", 0.01)
    monkeypatch.setattr(supervise, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(supervise, "TopicAdmin", Answering)
    monkeypatch.setattr(Answering, "away", 0)


class Answering:
    """A fake of the broker check; fails as many times as a test sets."""

    away = 0
    error: WorkerError = NoBrokerError("kafka.bootstrap_servers: no broker answers")

    def __init__(self, kafka, topics):
        pass

    async def __aenter__(self):
        if Answering.away > 0:
            Answering.away -= 1
            raise Answering.error

    async def __aexit__(self, *error):
        pass


class Supervised:
    """A supervisor over a process written by the test."""

    def __init__(self, folder: Path, does: str, **limits: float) -> None:
        self._starts = folder / "starts"
        settings = Settings()
        self.port = free_ports(1)[0]
        settings = settings.model_copy(
            update={
                "limits": settings.limits.model_copy(update=limits),
                "web": settings.web.model_copy(update={"port": self.port}),
            }
        )
        command = [sys.executable, "-S", "-c", PROCESS + does, str(self._starts)]
        self.supervisor = Supervisor(settings, command)

    @property
    def starts(self) -> list[int]:
        return [int(line) for line in self._starts.read_text().split()] if self._starts.exists() else []

    async def started(self, count: int) -> None:
        await eventually(lambda: len(self.starts) >= count)

    async def worked(self) -> None:
        await eventually(self._starts.with_name("starts.works").exists)

    async def get(self, path: str) -> tuple[int, str]:
        """Return the response of the worker's port, once it listens."""
        async with asyncio.timeout(120), aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"http://127.0.0.1:{self.port}{path}") as response:
                        return response.status, await response.text()
                await asyncio.sleep(0.01)

    async def readiness(self) -> tuple[int, list[str]]:
        """Return the status of the readiness probe, and the reasons in it."""
        status, body = await self.get("/readyz")
        return status, json.loads(body)["reasons"]

    async def becomes(self, status: int, *reasons: str) -> None:
        """Wait until the readiness probe responds so."""
        async with asyncio.timeout(120):
            while await self.readiness() != (status, list(reasons)):
                await asyncio.sleep(0.01)

    async def run(self) -> int:
        async with asyncio.timeout(120):
            return await self.supervisor.run()

    async def stopped_at_work(self, number: int = signal.SIGTERM) -> int:
        """Stop the supervisor once the process works; return the exit status."""
        running = asyncio.create_task(self.run())
        await self.worked()
        os.kill(os.getpid(), number)
        return await running


def stop():
    os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def running(folder: Path, does: str, **limits: float):
    """Run a supervisor, and stop it at the end."""
    here = Supervised(folder, does, **limits)
    ending = asyncio.create_task(here.run())
    yield here
    stop()
    await ending


async def test_a_configuration_that_prevents_the_start_is_not_retried(tmp_path):
    here = Supervised(tmp_path, f"sys.exit({StartError.exit_status})")
    assert await here.run() == StartError.exit_status
    assert len(here.starts) == 1


@pytest.mark.parametrize(("does", "status"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 128 + 9)])
async def test_a_worker_that_was_never_ready_is_given_up(tmp_path, does, status, caplog):
    """A container that is killed for memory at every start would else count as running."""
    here = Supervised(tmp_path, does)
    assert await here.run() == status
    assert len(here.starts) == supervise.FIRST_STARTS
    assert f"it failed at {supervise.FIRST_STARTS} starts and was never ready" in caplog.text


async def test_a_worker_that_was_ready_once_is_never_given_up(tmp_path):
    does = """
if start == 1:
    os.write(heartbeat, READY)
    while not os.path.exists(starts + ".go"): time.sleep(0.01)
"""
    async with running(tmp_path, does) as here:
        await here.becomes(200)
        (tmp_path / "starts.go").touch()
        await here.started(supervise.FIRST_STARTS + 3)


async def test_a_kill_from_outside_is_logged_as_a_possible_memory_kill(tmp_path, caplog):
    here = Supervised(tmp_path, "os.kill(os.getpid(), signal.SIGKILL) if start == 1 else beat(60)")
    running = asyncio.create_task(here.run())
    await here.started(2)
    stop()
    await running
    assert "the worker was killed, perhaps for memory; starting it again" in caplog.text


async def test_a_record_that_kills_workers_is_named_to_the_next_ones(tmp_path, caplog):
    """The first death tells what may have been in progress, every further one the record that was alone."""
    does = """
with open(starts + ".caution", "a") as file:
    file.write(sys.argv[-5] + "\\n")
if start <= 3:
    os.write(heartbeat, b'{"below": [1, 64]}\\n')
    if start > 1:
        os.write(heartbeat, b'{"alone": [1, 3]}\\n')
    os.kill(os.getpid(), signal.SIGKILL)
beat(60)
"""
    async with running(tmp_path, does, poison_attempts=3) as here:
        await here.started(4)
        caution = tmp_path / "starts.caution"
        await eventually(lambda: len(caution.read_text().splitlines()) == 4)
    lines = caution.read_text().splitlines()
    cautions = [json.loads(line) for line in lines]
    assert [caution["restarts"] for caution in cautions] == [0, 1, 2, 3]
    assert [len(caution["ends"]) for caution in cautions] == [0, 1, 2, 3]
    assert [caution["last_end"] for caution in cautions] == [
        "",
        *["the worker was killed, perhaps for memory"] * 3,
    ]
    records = ("below", "suspects", "dead_letters", "skipped")
    assert [{key: caution[key] for key in records if caution[key]} for caution in cautions] == [
        {},
        {"below": {"1": 64}},
        {"below": {"1": 64}, "suspects": [[1, 3]]},
        {"below": {"1": 64}, "suspects": [[1, 3]], "dead_letters": [[1, 3]]},
    ]
    assert "partition 1, offset 3: killed 3 workers; it will become a dead letter" in caplog.text


async def test_a_worker_that_started_once_is_always_restarted(tmp_path):
    """A topic that is deleted and recreated is briefly missing."""
    async with running(tmp_path, f"sys.exit(1 if start == 1 else {StartError.exit_status})") as here:
        await here.started(3)


async def test_a_process_may_end_by_itself_just_before_the_stop_signal(tmp_path, monkeypatch):
    def too_late(process):
        raise ProcessLookupError

    monkeypatch.setattr(asyncio.subprocess.Process, "terminate", too_late)
    here = Supervised(tmp_path, "works(); beat(0.2)")
    assert await here.stopped_at_work() == 0


async def test_a_silent_process_is_killed_and_restarted(tmp_path, caplog):
    """Its event loop hangs, so it would ignore SIGTERM."""
    does = "signal.signal(signal.SIGTERM, signal.SIG_IGN) if start == 1 else None; beat(0.1); time.sleep(60)"
    async with running(tmp_path, does, heartbeat=0.3) as here:
        await here.started(2)
    assert "no heartbeat from the worker for 0.3 s (limits.heartbeat)" in caplog.text
    assert "ended with status -9" in caplog.text


async def test_a_silent_process_is_not_what_it_said_last(tmp_path, monkeypatch):
    """The page of a worker that was suspended waited for 10 s, and then said "Healthy"."""
    monkeypatch.setattr(supervise, "SILENCE_LIMIT", 0.0)
    does = """os.write(heartbeat, READY); time.sleep(60)"""
    async with running(tmp_path, does) as here:
        await here.started(1)
        while '"silent"' not in (answer := await here.get("/readyz"))[1]:
            pass
        assert answer[0] == 200
        assert "Silent: no heartbeat for " in answer[1]
        assert is_in("silent") in (await here.get("/metrics"))[1]


async def test_a_process_may_take_long_until_its_first_heartbeat(tmp_path):
    """It loads a model."""
    here = Supervised(tmp_path, "time.sleep(0.5); works(); time.sleep(60)", heartbeat=0.05)
    await here.stopped_at_work()
    assert len(here.starts) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_stop_signal_is_forwarded_and_the_end_awaited(tmp_path, number):
    does = """
done = sys.argv[1] + ".done"
def finish(*_):
    time.sleep(0.2)
    open(done, "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, finish)
works()
beat(60)
"""
    here = Supervised(tmp_path, does)
    assert await here.stopped_at_work(number) == 0
    assert (tmp_path / "starts.done").exists()


@pytest.mark.parametrize("handler", ["signal.SIG_DFL", "lambda number, _: sys.exit(128 + number)"])
async def test_a_stop_while_the_process_starts_is_not_a_failure(tmp_path, handler):
    """It does not handle the signal yet, which therefore ends it."""
    does = f"""
signal.signal(signal.SIGTERM, {handler})
works()
time.sleep(60)
"""
    here = Supervised(tmp_path, does)
    assert await here.stopped_at_work() == 0


async def test_a_failure_while_stopping_is_reported_by_the_exit_status(tmp_path):
    does = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
works()
beat(60)
"""
    here = Supervised(tmp_path, does)
    assert await here.stopped_at_work() == 1


async def test_no_process_is_started_while_the_broker_is_down(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(Answering, "away", 3)
    async with running(tmp_path, "beat(60)") as here:
        await here.started(1)
    assert caplog.text.count("no broker answers; trying again") == 3


REFUSALS = [SecurityError("kafka.sasl_password: refused"), SettingsError("kafka.ssl_cafile: gone")]


async def test_a_worker_that_was_ready_is_restarted_even_if_a_retry_seems_useless(tmp_path):
    """A right that was taken away may come back."""
    does = """
os.write(heartbeat, READY)
while start == 1 and not os.path.exists(starts + ".works"):
    time.sleep(0.01)
if start == 1:
    sys.exit(78)
beat(60)
"""
    async with running(tmp_path, does) as here:
        await here.becomes(200)
        (tmp_path / "starts.works").touch()
        await here.started(2)


async def test_what_refused_a_start_is_the_first_reason_until_a_process_is_ready(tmp_path, monkeypatch):
    """It was brown, "Starting", with the reason last; and gone once the next process was killed."""
    monkeypatch.setattr(server, "ANSWER_LIMIT", 0.2)  # processes that start do not answer yet
    does = """
while start == 1 and not os.path.exists(starts + ".go1"):
    os.write(heartbeat, READY)
    time.sleep(0.01)
if start == 1:
    os.write(heartbeat, b'{"error": "kafka: the right Read is missing"}\\n')
    sys.exit(78)
while start == 2 and not os.path.exists(starts + ".go2"): time.sleep(0.01)
if start == 2:
    os.kill(os.getpid(), signal.SIGKILL)
while not os.path.exists(starts + ".go3"): time.sleep(0.01)
while True:
    os.write(heartbeat, READY)
    time.sleep(0.01)
"""

    async def shown(starts):
        await here.started(starts)
        metrics = (await here.get("/metrics"))[1]
        verdict = json.loads((await here.get("/readyz"))[1])["verdict"]
        assert (is_in("refused") in metrics, is_in("starting") in metrics) == (True, True)
        return [verdict["text"], *(other["text"] for other in verdict["others"])]

    async with running(tmp_path, does) as here:
        await here.becomes(200)  # a worker that was never ready is not started again
        (tmp_path / "starts.go1").touch()
        refused = "Refused: kafka: the right Read is missing; it needs you, and tries again in 0.01 s"
        assert await shown(2) == [
            refused,
            "Starting: the worker is starting; the last error: kafka: the right Read is missing",
        ]
        (tmp_path / "starts.go2").touch()
        assert await shown(3) == [
            refused,
            "Starting: the worker is starting; the worker was killed, perhaps for memory",
        ]
        (tmp_path / "starts.go3").touch()
        await here.becomes(200)
        assert is_in("refused") not in (await here.get("/metrics"))[1]


@pytest.mark.parametrize("error", REFUSALS)
async def test_a_refusal_by_the_broker_at_the_first_start_is_not_retried(tmp_path, monkeypatch, error):
    monkeypatch.setattr(Answering, "away", 10**9)
    monkeypatch.setattr(Answering, "error", error)
    here = Supervised(tmp_path, "beat(60)")
    with pytest.raises(type(error)):
        await here.run()
    assert exit_status_of(error) == os.EX_CONFIG


@pytest.mark.parametrize("error", REFUSALS)
async def test_a_refusal_by_the_broker_after_a_successful_start_is_retried(
    tmp_path, monkeypatch, error, caplog
):
    """A password changes on one side first."""
    monkeypatch.setattr(Answering, "error", error)
    async with running(tmp_path, "works(); beat(60)") as here:
        await here.worked()
        Answering.away = many = 10**9
        os.kill(here.starts[-1], signal.SIGKILL)
        async with asyncio.timeout(120):
            while is_in("refused") not in (await here.get("/metrics"))[1]:
                await asyncio.sleep(0.01)
        tries, Answering.away = many - Answering.away, 0
        await here.started(2)
    assert caplog.text.count(f"{error}; trying again") == tries > 0


async def test_a_stop_ends_the_wait_for_a_broker(tmp_path, monkeypatch):
    monkeypatch.setattr(Answering, "away", 10**9)
    here = Supervised(tmp_path, "beat(60)")
    running = asyncio.create_task(here.run())
    await eventually(lambda: Answering.away <= 10**9 - 2)
    stop()
    assert await running == 0
    assert here.starts == []


async def test_probes_and_pages_are_answered_while_the_broker_is_down(tmp_path, monkeypatch):
    """An orchestrator must not restart a waiting worker; one that was never ready is still not ready."""
    monkeypatch.setattr(Answering, "away", 10**9)
    here = Supervised(tmp_path, "beat(60)")
    running = asyncio.create_task(here.run())
    assert await here.get("/livez") == (200, '{"live": true}')
    await here.becomes(503, "cannot connect to Kafka: kafka.bootstrap_servers: no broker answers")
    assert is_in("waiting_for_kafka") in (await here.get("/metrics"))[1]
    stop()
    await running


WORKS = """os.write(heartbeat, READY); works(); time.sleep(60)"""


async def test_a_ready_worker_stays_ready_while_the_broker_is_down(tmp_path, monkeypatch):
    async with running(tmp_path, WORKS) as here:
        await here.becomes(200)
        monkeypatch.setattr(Answering, "away", 10**9)
        os.kill(here.starts[-1], signal.SIGKILL)
        async with asyncio.timeout(120):
            while is_in("waiting_for_kafka") not in (await here.get("/metrics"))[1]:
                await asyncio.sleep(0.01)
        assert (await here.get("/readyz"))[0] == 200


async def test_the_parent_answers_for_a_starting_child_until_its_first_beat(tmp_path):
    """A model takes a minute to load, during which the child cannot answer."""
    does = "\nwhile not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.01)\nbeat(60)"
    async with running(tmp_path, does) as here:
        await here.started(1)
        assert await here.get("/livez") == (200, '{"live": true}')
        assert await here.readiness() == (503, ["the worker is starting"])
        assert is_in("starting") in (await here.get("/metrics"))[1]
        (tmp_path / "starts.go").touch()
        await here.becomes(503, "not yet")


async def test_the_last_error_of_the_child_is_told_until_the_next_one_reports(tmp_path):
    """Otherwise only the log says that an output topic was deleted."""
    does = """
if start == 1:
    os.write(heartbeat, READY + b'{"error": "contribute no longer exists"}\\n')
    sys.exit(1)
while not os.path.exists(starts + '.go'): time.sleep(0.01)
beat(60)
"""
    async with running(tmp_path, does) as here:
        await here.becomes(503, "the worker is starting; the last error: contribute no longer exists")
        (tmp_path / "starts.go").touch()
        await here.becomes(503, "not yet")


HELD_BACK = {"state": "held_back", "reason": "another producer", "since": 7.0, "waits": []}
RECOVERING = {"state": "recovering", "reason": "1 of 2 partitions", "since": 8.0, "waits": []}


async def test_what_a_child_has_found_is_shown_and_told_to_the_next_one(tmp_path):
    """A restart ended each of its states, and began the delays of alerts anew."""
    found = json.dumps({"reasons": [], "findings": [HELD_BACK, RECOVERING]}).encode() + b"\n"
    does = f"""
with open(starts + ".caution", "a") as file:
    file.write(sys.argv[-5] + "\\n")
if start == 1:
    os.write(heartbeat, {found!r})
    while not os.path.exists(starts + '.go'): time.sleep(0.01)
time.sleep(60)
"""
    async with running(tmp_path, does) as here:
        await here.becomes(200)
        (tmp_path / "starts.go").touch()
        os.kill(here.starts[-1], signal.SIGKILL)
        await here.started(2)
        verdict = json.loads((await here.get("/readyz"))[1])["verdict"]
        metrics = (await here.get("/metrics"))[1]
        cautions = tmp_path / "starts.caution"
        await eventually(lambda: cautions.read_text().count("\n") == 2)

    shown = [verdict, *verdict["others"]]
    assert [(each["state"], each["since"]) for each in shown][:1] == [("held_back", 7.0)]
    assert [each["state"] for each in shown][1:] == ["starting"]
    assert is_in("held_back") in metrics
    assert is_in("starting") in metrics
    first, second = map(json.loads, cautions.read_text().splitlines())
    assert (first["findings"], second["findings"]) == ([], [HELD_BACK])


async def test_the_last_error_is_told_until_the_broker_has_not_answered(tmp_path, monkeypatch):
    """For the first seconds of each restart, the page said that the worker waited for Kafka, and no error."""
    asked, answering = asyncio.Event(), asyncio.Event()

    class Slow(Answering):
        async def __aenter__(self):
            if here.starts:
                asked.set()
                await answering.wait()
            await super().__aenter__()

    monkeypatch.setattr(supervise, "TopicAdmin", Slow)
    does = """
if start == 1:
    os.write(heartbeat, b'{"error": "contribute no longer exists"}\\n')
    sys.exit(1)
beat(60)
"""
    async with running(tmp_path, does) as here:
        await asked.wait()
        verdict = json.loads((await here.get("/readyz"))[1])["verdict"]
        assert verdict["text"] == (
            "Starting: the worker is starting; the last error: contribute no longer exists"
        )
        Answering.away = 10**9
        answering.set()
        await here.becomes(503, "cannot connect to Kafka: kafka.bootstrap_servers: no broker answers")


async def test_a_port_in_use_is_an_error_before_anything_starts(tmp_path):
    here = Supervised(tmp_path, "beat(60)")
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", here.port)
    async with server:
        with pytest.raises(StartError, match=f"web.host, web.port: 127.0.0.1:{here.port}: "):
            await here.run()
    assert here.starts == []
