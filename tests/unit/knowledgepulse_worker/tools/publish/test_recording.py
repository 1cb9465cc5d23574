"""Traces of agents that record their runs themselves."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading

import pytest

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker import record
from knowledgepulse_worker.tools.publish import recording


@pytest.fixture
def file(tmp_path):
    return tmp_path / "traces.jsonl"


@pytest.fixture
def written(file):
    """Return what the file has once all is delivered."""

    def read():
        delivery = recording._delivery(file, "id", None)
        assert delivery.flush(60)
        lines = file.read_bytes().splitlines() if file.exists() else []
        assert all(map(ReasoningTrace.model_validate_json, lines))
        return [json.loads(line) for line in lines]

    yield read
    delivery = recording._delivery(file, "id", None)
    delivery.close()
    if delivery._thread is not None:
        delivery._thread.join(60)
        delivery._loop.close()


def steps_of(trace):
    return [(step["type"], step.get("content")) for step in trace["steps"]]


def test_a_run_is_a_trace_with_its_thoughts_calls_and_answer(file, written):
    with record("How much does the loaf weigh?", file, agent_id="baker", task_domain="kitchen") as run:
        run.thought("I need the scales.")
        with run.call("mcp__bakery__scales", {"item": "loaf"}) as call:
            call.result({"grams": 812})
        run.answer("812 g")
        run.judge(confidence=0.9)

    (trace,) = written()
    assert trace["task"]["objective"] == "How much does the loaf weigh?"
    assert steps_of(trace) == [
        ("thought", "I need the scales."),
        ("tool_call", None),
        ("observation", '{"grams": 812}'),
        ("thought", "812 g"),
    ]
    call = trace["steps"][1]
    assert call["tool"] == {"name": "scales", "mcp_server": "bakery"}
    assert call["input"] == {"item": "loaf"}
    assert call["latency_ms"] >= 0
    assert trace["outcome"] == {"result_summary": "812 g", "confidence": 0.9}
    told = trace["metadata"]
    assert (told["ending"], told["success"], told["agent_id"]) == ("answered", True, "baker")
    assert (told["task_domain"], told["framework"], told["visibility"]) == ("kitchen", "record", "private")


def test_a_run_of_an_event_loop_is_recorded_too_and_calls_may_overlap(file, written):
    async def weigh(run, item):
        async with run.call("scales", {"item": item}) as call:
            await asyncio.sleep(0)
            call.result(f"{item}: 1 g")

    async def agent():
        async with record("Weigh both", file) as run:
            await asyncio.gather(weigh(run, "loaf"), weigh(run, "tin"))
            run.answer("Both weigh 1 g")

    asyncio.run(agent())

    (trace,) = written()
    results = {step["tool_call_id"]: step for step in trace["steps"] if step["type"] == "observation"}
    for step in trace["steps"]:
        if step["type"] == "tool_call":
            assert results[step["tool_call_id"]]["content"] == f"{step['input']['item']}: 1 g"


@pytest.mark.parametrize(
    ("error", "ending"), [(ValueError("no scales"), "failed"), (KeyboardInterrupt(), "cut_off")]
)
def test_an_exception_that_leaves_is_the_end_of_the_run_and_goes_on(file, written, error, ending):
    def agent():
        with record("Weigh the loaf", file) as run:
            run.thought("I need the scales.")
            raise error

    with pytest.raises(type(error)):
        agent()

    (trace,) = written()
    assert (trace["metadata"]["ending"], trace["metadata"]["success"]) == (ending, False)
    assert steps_of(trace)[-1][1].startswith(type(error).__name__)


def test_a_call_that_fails_is_recovered_from(file, written):
    with record("Weigh the loaf", file) as run:
        with pytest.raises(OSError, match="unplugged"), run.call("scales"):
            raise OSError("unplugged")
        run.thought("I lift it instead.")
        run.answer("About 800 g")

    (trace,) = written()
    assert steps_of(trace)[1:3] == [
        ("observation", "OSError: unplugged"),
        ("error_recovery", "I lift it instead."),
    ]
    assert trace["metadata"]["ending"] == "answered"


def test_what_json_cannot_hold_is_recorded_as_its_text_and_breaks_nothing(file, written, caplog):
    circle = []
    circle.append(circle)
    with record("Weigh odd things", file) as run:
        with run.call("scales", {"item": object, "keys": {(1, 2): 3}}) as call:
            call.result(circle)
        run.answer("\ud800 done")
    with record("Nothing", file):
        pass
    with record("Weigh the loaf", file) as run:
        run.answer("812 g")

    traces = written()
    assert [trace["task"]["objective"] for trace in traces] == ["Weigh odd things", "Weigh the loaf"]
    assert steps_of(traces[0])[1] == ("observation", "[[...]]")
    assert "not published: no steps" in caplog.text


def test_what_is_recorded_after_the_end_changes_nothing(file, written):
    with record("Weigh the loaf", file) as run:
        run.answer("812 g")
    late = threading.Thread(target=run.answer, args=("95 g",))
    late.start()
    late.join()

    (trace,) = written()
    assert trace["outcome"]["result_summary"] == "812 g"


def test_the_trace_of_an_agent_that_ends_at_once_is_written(file):
    code = (
        "import sys; from knowledgepulse_worker import record\n"
        "with record('Weigh the loaf', sys.argv[1]) as run: run.answer('812 g')"
    )

    subprocess.run([sys.executable, "-c", code, file], check=True)

    assert json.loads(file.read_text())["outcome"]["result_summary"] == "812 g"
