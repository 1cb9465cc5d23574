"""Which scored records become events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.tools.evaluations.metrics import EvaluationMetrics
from knowledgepulse_worker.tools.evaluations.run import Evaluations
from support.otlp import logs_of
from support.scored import dead_letter, published

TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "0ee19b7ec3c1b173"


@pytest.fixture(scope="module")
def scored(real_traces):
    """Return a scored record at an offset, with a span unless `span` is false."""
    trace = ReasoningTrace.model_validate_json(real_traces[0])
    score = Scorer().evaluate(trace)

    def make(offset, *, span=True, trace_id="kp:trace:1"):
        context = {"span_context": {"trace_id": TRACE, "span_id": SPAN}} if span else {}
        changed = trace.model_copy(
            update={"id": trace_id, "metadata": trace.metadata.model_copy(update=context)}, deep=True
        )
        return published(offset, changed.to_json(), score, Policy())

    return make


@pytest.fixture
def metrics():
    return EvaluationMetrics(CollectorRegistry())


def test_a_score_is_sent_under_its_trace_id_and_what_is_skipped_is_counted(scored, metrics):
    evaluations = Evaluations("a-group", 10, metrics)
    records = [scored(0), scored(0), scored(1, span=False), dead_letter(2), replace(scored(3), headers=())]

    (key, value), *rest = map(evaluations.event, records)

    assert (key, len(logs_of(value))) == (TRACE.encode(), 1)
    assert rest == [None] * 4
    assert metrics.counts() == {"sent": 1, "without_span": 1, "repeat": 1, "foreign": 2}


def test_a_trace_at_the_offset_of_a_recreated_topic_is_no_repeat(scored, metrics):
    evaluations = Evaluations("a-group", 10, metrics)

    assert evaluations.event(scored(0))
    assert evaluations.event(scored(0, trace_id="kp:trace:2"))


@given(st.lists(st.integers(0, 30), max_size=60))
def test_a_score_is_sent_once_as_long_as_its_repeat_is_among_the_last_of_its_partition(scored, offsets):
    window = 31
    evaluations = Evaluations("a-group", window, EvaluationMetrics(CollectorRegistry()))

    sent = [offset for offset in offsets if evaluations.event(scored(offset))]

    assert sent == list(dict.fromkeys(offsets))
    assert all(len(seen) <= window for seen in evaluations._seen.values())


def test_memory_is_bounded(scored, metrics):
    evaluations = Evaluations("a-group", 3, metrics)

    for offset in range(10):
        evaluations.event(scored(offset))

    assert [len(seen) for seen in evaluations._seen.values()] == [3]
