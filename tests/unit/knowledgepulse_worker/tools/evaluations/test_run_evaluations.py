"""Which scored records become events."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.kafka.transactional_publisher import GroupOffset
from knowledgepulse_worker.kafka.wire.group_offsets import GroupMetadata
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics
from knowledgepulse_worker.tools.evaluations.run_evaluations import Evaluations, send_evaluations
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
    remembered = 31
    evaluations = Evaluations("a-group", remembered, EvaluationMetrics(CollectorRegistry()))

    sent = [offset for offset in offsets if evaluations.event(scored(offset))]

    assert sent == list(dict.fromkeys(offsets))
    assert all(len(seen) <= remembered for seen in evaluations._seen.values())


def test_memory_is_bounded(scored, metrics):
    evaluations = Evaluations("a-group", 3, metrics)

    for offset in range(10):
        evaluations.event(scored(offset))

    assert [len(seen) for seen in evaluations._seen.values()] == [3]


class Reader:
    """Reads one batch, as a member of the group's seventh generation."""

    def __init__(self, records, stop):
        self.group = GroupMetadata("a-group")
        self._records = records
        self._stop = stop

    async def batch(self):
        self.group = GroupMetadata("a-group", "a-member", 7)
        self._stop.set()
        return self._records

    async def lag(self):
        return 0


class Transactions:
    """Notes what transactions commit, and for whom."""

    def __init__(self):
        self.committed = []

    @asynccontextmanager
    async def transaction(self, *offsets, group):
        async def send(*_, **__):
            delivery = asyncio.get_running_loop().create_future()
            delivery.set_result(None)
            return delivery

        yield send
        self.committed.append((group, offsets))


async def test_a_batch_is_committed_as_the_member_that_has_read_it(scored, metrics):
    """The brokers then refuse it if its partitions have other owners."""
    stop, transactions = asyncio.Event(), Transactions()
    record = scored(4)
    reader = Reader([record], stop)

    await send_evaluations(Evaluations("kp", 10, metrics), Settings(), reader, transactions, stop)

    after = GroupOffset(record.topic, record.partition, record.offset + 1)
    assert transactions.committed == [(GroupMetadata("a-group", "a-member", 7), (after,))]
