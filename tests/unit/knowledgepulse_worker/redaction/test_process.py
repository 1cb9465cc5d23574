"""The redaction function in its own process: what it returns, how it fails, and that nothing else suffers."""

import asyncio
import json
import os
from contextlib import suppress

import psutil
import pytest

from knowledgepulse_worker import child_process
from knowledgepulse_worker.errors import RedactionError, SettingsError
from knowledgepulse_worker.redaction.process import RedactionProcess
from support.hostile_redaction import HOSTILE
from support.streams import TESTS

FUNCTIONS = """
import os, re, signal, time

def masks(trace):
    print("printing is harmless")
    os.write(1, b"and so is this")
    return {**trace, "masked": True}

def raises(trace):
    raise ValueError(trace["secret"])

def returns_no_json(trace):
    return {"a set": {1, 2}}

def returns_nan(trace):
    return float("nan")

def returns_a_surrogate(trace):
    return {"text": "\\ud800"}

def obeys(trace):
    if trace.get("sleep"):
        time.sleep(3600)
    if trace.get("backtrack"):
        re.fullmatch("(a+)+", "a" * 60 + "b")  # holds the interpreter's lock for years
    if trace.get("ignore"):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        while True:
            time.sleep(3600)
    if trace.get("exit"):
        os._exit(3)
    if trace.get("close"):
        os.closerange(3, 100)
    return trace

async def is_async(trace):
    return trace

not_a_function = 1
"""
SECRET = "canary-of-a-trace"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Return a function that creates a process for one of the functions above."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "broken.py").write_text(f"raise RuntimeError('{SECRET}')")
    (tmp_path / "gone.py").write_text("import os; os._exit(1)")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), str(TESTS), os.environ.get("PYTHONPATH", "")])
    )
    return lambda name, timeout=60.0: RedactionProcess(name, timeout)


async def redacted(process, **trace):
    return json.loads(await process.redact(json.dumps(trace).encode()))


LARGE = {"text": "ö" * 2_000_000}


@pytest.mark.parametrize(
    ("name", "trace", "returned"),
    [
        ("masks", {"number": 1}, {"number": 1, "masked": True}),
        ("obeys", LARGE, LARGE),
        ("returns_a_surrogate", {}, {"text": "?"}),
    ],
    ids=["masked", "large", "a lone surrogate"],
)
async def test_a_trace_is_what_the_function_returns(start, name, trace, returned):
    async with start(f"functions:{name}") as process:
        for _ in range(2):
            assert await redacted(process, **trace) == returned


@pytest.mark.parametrize(
    ("name", "error"),
    [("raises", "ValueError"), ("returns_no_json", "TypeError"), ("returns_nan", "ValueError")],
)
async def test_an_error_is_reported_by_its_class_alone(start, name, error):
    """Its text may quote the trace, and what is reported is logged."""
    async with start(f"functions:{name}") as process:
        for _ in range(2):
            with pytest.raises(RedactionError) as raised:
                await redacted(process, secret=SECRET)
            assert (raised.value.reason, str(raised.value)) == ("raised", f"raised: {error}")


@pytest.mark.parametrize("how", ["sleep", "backtrack"])
@pytest.mark.slow
async def test_a_call_that_takes_too_long_is_ended_beside_the_event_loop(start, how):
    async with start("functions:obeys", timeout=1) as process:
        call, turns = asyncio.create_task(redacted(process, **{how: True})), 0
        while not call.done():
            turns += 1
            await asyncio.sleep(0.01)
        with pytest.raises(RedactionError, match=r"^timeout$"):
            await call
        assert turns > 5
        assert await redacted(process, number=1) == {"number": 1}


@pytest.mark.slow
async def test_a_function_that_ignores_the_signal_is_killed(start, monkeypatch):
    monkeypatch.setattr(child_process, "OVERTIME", 0.1)
    async with start("functions:obeys", timeout=1) as process:
        async with asyncio.timeout(60):
            with pytest.raises(RedactionError, match=r"^timeout$"):
                await redacted(process, ignore=True)
        assert await redacted(process, number=1) == {"number": 1}


@pytest.mark.parametrize(("how", "ends"), HOSTILE.items(), ids=HOSTILE)
@pytest.mark.slow
async def test_a_hostile_function_holds_up_neither_its_caller_nor_the_stop(start, how, ends):
    """What it started ends with it, unless that has a session of its own; none lives for half a minute."""
    async with asyncio.timeout(15), start("support.hostile_redaction:hostile", timeout=0.5) as process:
        group = process._process.pid
        try:
            result = await redacted(process, how=how)
        except RedactionError as error:
            result = error.reason
        assert result == (ends or {"how": how})
    async with asyncio.timeout(15):
        while any(_is_in(each, group) for each in psutil.process_iter(["status"])):
            await asyncio.sleep(0.05)


def _is_in(process, group):
    with suppress(ProcessLookupError):
        return os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.slow
async def test_the_limit_does_not_end_a_process_that_waits_for_a_trace(start):
    async with start("functions:obeys", timeout=1) as process:
        await redacted(process, number=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process._process.wait(), 1.5)
        assert await redacted(process, number=2) == {"number": 2}


@pytest.mark.parametrize("how", ["exit", "close"])
async def test_a_function_that_ends_its_process_fails_for_that_trace_alone(start, how):
    async with start("functions:obeys") as process:
        with pytest.raises(RedactionError, match=r"^crashed$"):
            await redacted(process, **{how: True})
        assert await redacted(process, number=1) == {"number": 1}


async def test_a_process_that_cannot_start_again_fails_for_each_trace(start, tmp_path):
    async with start("functions:obeys") as process:
        with pytest.raises(RedactionError):
            await redacted(process, exit=True)
        (tmp_path / "functions.py").unlink()
        for _ in range(2):
            with pytest.raises(
                RedactionError, match=r"^crashed: redaction\.function: functions:obeys: No module"
            ):
                await redacted(process, number=1)


async def test_an_abandoned_call_does_not_answer_the_next(start):
    """As when the partition moves away while its trace is being redacted."""
    async with start("functions:obeys") as process:
        abandoned = asyncio.create_task(redacted(process, sleep=True))
        while not process._lock.locked():
            await asyncio.sleep(0)
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        assert await redacted(process, number=1) == {"number": 1}


async def test_calls_take_turns(start):
    async with start("functions:obeys") as process:
        calls = [redacted(process, number=number) for number in range(20)]
        assert [call["number"] for call in await asyncio.gather(*calls)] == list(range(20))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nosuch:redact", "nosuch:redact: No module named 'nosuch'"),
        ("functions:nosuch", "functions:nosuch: module 'functions' has no attribute 'nosuch'"),
        ("functions:not_a_function", "functions:not_a_function: is not a function"),
        ("functions:is_async", "functions:is_async: is an async function; use a regular function"),
        ("broken:redact", "broken:redact: RuntimeError on import"),
        ("gone:redact", "gone:redact: the process ended while importing it"),
    ],
)
async def test_an_unusable_function_is_an_error_that_names_it(start, name, problem):
    with pytest.raises(SettingsError) as raised:
        async with start(name):
            pass
    assert str(raised.value) == f"redaction.function: {problem}"


async def test_the_process_ends_with_the_worker(start):
    """Also if the worker is killed, which ends its pipes, as here."""
    async with start("functions:obeys") as process:
        child = process._process
        child.stdin.close()
        assert await child.wait() == 0
