"""Spans of the records that a lane finishes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from knowledgepulse_worker.lane.reporter import Reporter


class Spans:
    """A fake of the tracing module that records finished spans."""

    def __init__(self):
        self.finished_spans = []

    def finished(self, record, **members):
        self.finished_spans.append({"record": record, **members})

    def outcomes(self):
        return {span["record"].offset: span["outcome"] for span in self.finished_spans}


@pytest.fixture
def make_traced(make_harness):
    """A factory of harnesses whose lanes export spans."""

    def make(**options):
        harness = make_harness(**options)
        harness.spans = Spans()
        harness.services = replace(
            harness.services,
            reporter=Reporter(harness.services.metrics, harness.services.shadow, tracing=harness.spans),
        )
        return harness

    return make


async def test_a_span_is_exported_once_the_record_is_committed(make_traced, raw):
    harness = make_traced()
    lane = await harness.lane()
    await lane.take(raw(0))
    await harness.until(lane.uncommitted.complete)
    assert harness.spans.finished_spans == []

    await harness.commit(lane)

    (span,) = harness.spans.finished_spans
    assert span["record"] == raw(0)
    assert span["output"] in harness.scored
    assert span["taken"] <= span["embedded"][0] <= span["embedded"][1] <= span["sent"]
    assert span["outcome"]["outcome"] == span["output"]
    assert span["outcome"]["domain"] == "code"
    assert 0 <= span["outcome"]["score"] <= 1
    assert span["outcome"]["reason"] is None
