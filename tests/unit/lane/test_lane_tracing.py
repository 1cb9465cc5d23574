"""Which records a lane makes spans of."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from worker.errors import StartError
from worker.settings import Settings
from worker.stream import run


class Spans:
    """Stands in for what makes spans; keeps what it is told."""

    def __init__(self):
        self.told = []

    def finished(self, **members):
        self.told.append(members)

    def verdicts(self):
        return {one["offset"]: one["verdict"] for one in self.told}


@pytest.fixture
def traced(world):
    """A world whose lanes make spans."""

    def make(**options):
        made = world(**options)
        made.spans = Spans()
        made.services = replace(made.services, tracing=made.spans)
        return made

    return make


async def test_a_record_is_told_once_its_output_is_confirmed(traced, raw):
    world = traced()
    world.publisher.hold(*world.scored)
    lane = await world.lane()
    await lane.take(raw(0))
    await world.until(lambda: world.publisher.waiting(*world.scored))
    await world.settle()
    assert world.spans.told == []

    world.publisher.release(*world.scored)
    await world.until(lambda: lane.watermark == 1)

    (told,) = world.spans.told
    record = raw(0)
    assert {name: told[name] for name in ("topic", "partition", "offset", "headers", "value")} == {
        "topic": record.topic,
        "partition": 0,
        "offset": 0,
        "headers": record.headers,
        "value": record.value,
    }
    assert told["output"] in world.scored
    assert told["taken"] <= told["embedded"][0] <= told["embedded"][1] <= told["sent"]
    assert told["verdict"]["outcome"] == told["output"]
    assert told["verdict"]["domain"] == "code"
    assert 0 <= told["verdict"]["score"] <= 1
    assert (told["verdict"]["reason"], told["verdict"]["redelivered"]) == (None, False)


async def test_a_dead_letter_is_told_with_its_reason(traced, raw):
    world = traced()
    lane = await world.lane()
    await lane.take(raw(0, b"no trace"))
    await world.until(lambda: lane.watermark == 1)

    (told,) = world.spans.told
    assert (told["output"], told["embedded"]) == (world.dead_letter, None)
    assert told["verdict"] == {
        "outcome": "dead_letter",
        "score": None,
        "domain": None,
        "reason": "not_json",
        "redelivered": False,
    }


async def test_a_record_whose_output_is_refused_is_told_as_the_dead_letter_that_it_became(traced, raw):
    world = traced()
    world.publisher.refused.update(world.scored)
    lane = await world.lane()
    await lane.take(raw(0))
    await world.until(lambda: lane.watermark == 1)

    (told,) = world.spans.told
    assert told["output"] == world.dead_letter
    assert (told["verdict"]["outcome"], told["verdict"]["reason"]) == ("dead_letter", "too_large")


async def test_a_record_that_comes_again_is_told_again_and_marked(traced, raw):
    world = traced()
    first = await world.lane()
    await first.take(raw(0))
    await world.until(lambda: first.watermark == 1)
    second = await world.lane(changelog=world.changelog())
    await second.take(raw(0))
    await world.until(lambda: second.watermark == 1)

    assert [one["verdict"]["redelivered"] for one in world.spans.told] == [False, True]
    scores = [one["verdict"]["score"] for one in world.spans.told]
    assert scores[0] == scores[1]
    assert world.spans.told[1]["embedded"] is None


async def test_what_a_lane_gives_up_is_not_told(traced, raw):
    """It is told where it is delivered again; no span is left open."""
    world = traced()
    world.embedder.free.clear()
    lane = await world.lane()
    await lane.take(raw(0))
    await lane.drain(1)

    assert world.spans.told == []


# --- whether spans are made at all


def test_nothing_of_opentelemetry_is_imported_unless_it_is_asked_for():
    code = "import sys, worker.stream.run; print([name for name in sys.modules if 'opentelemetry' in name])"
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
    with pytest.raises(StartError, match="OTEL_TRACES_EXPORTER: got 'console'; takes otlp or none"):
        run._tracing(Settings())


def test_a_worker_without_the_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setenv(run.TRACES_EXPORTER, "otlp")
    monkeypatch.delitem(sys.modules, "worker.observe.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(StartError, match=r"pip install 'knowledgepulse-worker\[otel\]'"):
        run._tracing(Settings())
