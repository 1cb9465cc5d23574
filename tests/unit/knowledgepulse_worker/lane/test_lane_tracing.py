"""Spans of the records that a lane finishes."""

from __future__ import annotations

from dataclasses import replace

import pytest


class Spans:
    """A fake of the tracing module that records finished spans."""

    def __init__(self):
        self.finished_spans = []

    def finished(self, **members):
        self.finished_spans.append(members)

    def verdicts(self):
        return {one["offset"]: one["verdict"] for one in self.finished_spans}


@pytest.fixture
def make_traced(make_harness):
    """A factory of harnesses whose lanes export spans."""

    def make(**options):
        harness = make_harness(**options)
        harness.spans = Spans()
        harness.services = replace(harness.services, tracing=harness.spans)
        return harness

    return make


async def test_a_span_is_exported_once_the_record_s_output_is_confirmed(make_traced, raw):
    harness = make_traced()
    harness.publisher.hold(*harness.scored)
    lane = await harness.lane()
    await lane.take(raw(0))
    await harness.until(lambda: harness.publisher.waiting(*harness.scored))
    await harness.settle()
    assert harness.spans.finished_spans == []

    harness.publisher.release(*harness.scored)
    await harness.until(lambda: lane.watermark == 1)

    (span,) = harness.spans.finished_spans
    record = raw(0)
    assert {name: span[name] for name in ("topic", "partition", "offset", "headers", "value")} == {
        "topic": record.topic,
        "partition": 0,
        "offset": 0,
        "headers": record.headers,
        "value": record.value,
    }
    assert span["output"] in harness.scored
    assert span["taken"] <= span["embedded"][0] <= span["embedded"][1] <= span["sent"]
    assert span["verdict"]["outcome"] == span["output"]
    assert span["verdict"]["domain"] == "code"
    assert 0 <= span["verdict"]["score"] <= 1
    assert (span["verdict"]["reason"], span["verdict"]["redelivered"]) == (None, False)


async def test_a_redelivered_record_gets_another_span_marked_as_redelivered(make_traced, raw):
    harness = make_traced()
    first = await harness.lane()
    await first.take(raw(0))
    await harness.until(lambda: first.watermark == 1)
    second = await harness.lane(changelog=harness.changelog())
    await second.take(raw(0))
    await harness.until(lambda: second.watermark == 1)

    assert [one["verdict"]["redelivered"] for one in harness.spans.finished_spans] == [False, True]
    scores = [one["verdict"]["score"] for one in harness.spans.finished_spans]
    assert scores[0] == scores[1]
    assert harness.spans.finished_spans[1]["embedded"] is None
