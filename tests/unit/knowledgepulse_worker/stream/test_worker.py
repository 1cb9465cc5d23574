"""The worker process: its parts, and that it ends in time whatever hangs."""

import asyncio
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from knowledgepulse_kafka.errors import DeliveryError, TopicError
from knowledgepulse_worker import shutdown
from knowledgepulse_worker.errors import EmbeddingError, MissingExtraError, StalledError, StartError
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.shutdown import close_within, run_in_time
from knowledgepulse_worker.stream import worker as run

HANGS = """
import asyncio, sys
from types import SimpleNamespace
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker import shutdown
from knowledgepulse_worker.stream import worker as run

run.STOP_LIMIT, run.END_LIMIT = 0.0, 1.0

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
    faust = SimpleNamespace(wait_until_stopped=forever.wait, stop=stubborn, crashed=False)
    heart = asyncio.create_task(forever.wait())
    await run._serve(done, faust, Settings(), asyncio.Event(), failed, [heart], [])

shutdown.run_in_time(main())
"""


@pytest.mark.slow
def test_after_a_failure_the_process_ends_whatever_hangs():
    """A client's task that cannot be cancelled once kept a process for half a minute."""
    done = subprocess.run([sys.executable, "-c", HANGS], check=False, capture_output=True, text=True)

    assert "cancelled" in done.stdout
    assert done.returncode == 1
    assert "Timeout" in done.stderr  # with the traceback of what hangs


def test_a_task_that_ignores_cancellation_does_not_keep_the_process_alive(monkeypatch):
    """As some of the client's tasks do while a broker is down."""
    monkeypatch.setattr(shutdown, "CLEANUP_LIMIT", 0.01)
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


async def test_closing_is_abandoned_after_the_limit(caplog):
    await close_within(0.01, asyncio.Event().wait, "the stream")

    assert caplog.messages == ["the stream has not ended in 0.01 s and is abandoned"]


@pytest.mark.parametrize(
    ("error", "blames"),
    [
        (DeliveryError("raw: the broker is down"), False),
        (TopicError("raw no longer exists"), False),
        (StalledError("partition 0"), True),
        (EmbeddingError("out of memory"), True),
        (ZeroDivisionError(), True),
    ],
)
def test_no_record_is_blamed_for_an_outage(error, blames):
    assert run._blames_records(error) == blames


async def test_a_background_task_s_error_ends_the_process_and_its_cancellation_does_not():
    failures = []

    async def fail():
        raise StalledError("partition 0")

    task = run._start_background(fail(), failures.append)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [str(failure) for failure in failures] == ["partition 0"]

    task = run._start_background(asyncio.Event().wait(), failures.append)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert len(failures) == 1


# --- the span exporter


def test_opentelemetry_is_not_imported_unless_an_exporter_is_set():
    code = "import sys, knowledgepulse_worker.stream.worker; "
    code += "print([name for name in sys.modules if 'opentelemetry' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize("value", [None, "none"])
def test_without_an_exporter_there_are_no_spans(monkeypatch, value):
    monkeypatch.delenv(run.TRACES_EXPORTER, raising=False)
    if value is not None:
        monkeypatch.setenv(run.TRACES_EXPORTER, value)
    with run._tracing(Settings()) as tracing:
        assert tracing is None


def test_another_exporter_is_refused(monkeypatch):
    monkeypatch.setenv(run.TRACES_EXPORTER, "console")
    with pytest.raises(StartError, match="OTEL_TRACES_EXPORTER: got 'console'; expected otlp or none"):
        run._tracing(Settings())


def test_a_worker_without_the_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setenv(run.TRACES_EXPORTER, "otlp")
    monkeypatch.delitem(sys.modules, "knowledgepulse_worker.observe.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=r"pip install -c constraints\.txt '\.\[otel\]'"):
        run._tracing(Settings())
