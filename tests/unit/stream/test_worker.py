"""The worker process: its parts, and that it ends in time whatever hangs."""

import asyncio
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from worker import ending
from worker.ending import run_in_time, within
from worker.errors import DeliveryError, EmbeddingError, StalledError, StartError, TopicError
from worker.records.journal import Phase
from worker.settings import Settings
from worker.stream import worker as run

HANGS = """
import asyncio, sys
from types import SimpleNamespace
from worker.settings import Settings
from worker import ending
from worker.stream import worker as run

run.STOP_LIMIT, run.END_LIMIT = 0.1, 0.5

async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("cancelled", flush=True)

async def done():
    pass

async def main():
    forever = asyncio.Event()
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(RuntimeError("a lane cannot go on"))
    faust = SimpleNamespace(start=done, wait_until_stopped=forever.wait, stop=stubborn, crashed=False)
    await run._serve(faust, Settings(), asyncio.Event(), failed, asyncio.create_task(forever.wait()), [])

ending.run_in_time(main())
"""


def test_after_a_failure_the_process_ends_whatever_hangs():
    """A client's task that cannot be cancelled once kept a process for half a minute."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS], check=False, capture_output=True, text=True, timeout=60
    )

    assert "cancelled" in done.stdout
    assert done.returncode == 1
    assert "Timeout" in done.stderr  # with the traceback of what hangs


def test_a_task_that_ignores_cancellation_does_not_keep_the_process_alive(monkeypatch):
    """As some of the client's tasks do while a broker is down."""
    monkeypatch.setattr(ending, "CLEANUP_LIMIT", 0.01)
    stubborn = []  # the task and its loop

    async def hang():
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def work():
        stubborn.extend([asyncio.create_task(hang()), asyncio.get_running_loop()])
        await asyncio.sleep(0)

    running = threading.Thread(target=run_in_time, args=(work(),), daemon=True)
    running.start()
    running.join(20)

    assert not running.is_alive()
    task, loop = stubborn
    assert not task.done()
    task._log_destroy_pending = False  # it is pending on purpose
    loop.close()


async def test_closing_is_abandoned_after_the_limit():
    await within(0.01, asyncio.Event().wait)


@pytest.mark.parametrize(
    ("error", "phases"),
    [
        (DeliveryError("raw: the broker is down"), set()),
        (TopicError("raw no longer exists"), set()),
        (StalledError("partition 0"), {Phase.COMPUTING}),
        (EmbeddingError("out of memory"), set(Phase)),
        (ZeroDivisionError(), set(Phase)),
    ],
)
def test_no_record_is_blamed_for_an_outage(error, phases):
    assert run._blamed(error) == phases


def test_an_unknown_span_exporter_is_an_error_that_lists_the_known_ones(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")

    with pytest.raises(StartError, match="OTEL_TRACES_EXPORTER: got 'zipkin'; expected otlp or none"):
        run._tracing(Settings())


async def test_a_guard_s_error_ends_the_process_and_its_cancellation_does_not():
    failures = []

    async def fail():
        raise StalledError("partition 0")

    guard = run._guard(fail(), failures.append)
    await asyncio.wait([guard])
    await asyncio.sleep(0)
    assert [str(one) for one in failures] == ["partition 0"]

    guard = run._guard(asyncio.Event().wait(), failures.append)
    await asyncio.sleep(0)
    guard.cancel()
    await asyncio.wait([guard])
    await asyncio.sleep(0)
    assert len(failures) == 1
