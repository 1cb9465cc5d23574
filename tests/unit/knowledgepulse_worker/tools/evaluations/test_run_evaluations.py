"""Which scored records become events."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import Position
from knowledgepulse_schemas import ReasoningTrace
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
    evaluations = Evaluations("a-group", metrics)
    records = [scored(0), scored(1, span=False), dead_letter(2), replace(scored(3), headers=())]

    (key, value), *rest = map(evaluations.event, records)

    assert (key, len(logs_of(value))) == (TRACE.encode(), 1)
    assert rest == [None] * 3
    assert metrics.counts() == {"sent": 1, "without_span": 1, "foreign": 2}


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
        self.written = []
        self.committed = []

    async def deliver(self, records, group, positions):
        self.written += records
        self.committed.append((group, positions))


async def test_a_batch_is_committed_as_the_member_that_has_read_it(scored, metrics):
    """The brokers then refuse it if its partitions have other owners."""
    stop, transactions = asyncio.Event(), Transactions()
    record = scored(4)
    reader = Reader([record], stop)

    await send_evaluations(Evaluations("kp", metrics), Settings(), reader, transactions, stop)

    after = {(record.topic, record.partition): Position(record.offset + 1)}
    assert transactions.committed == [(GroupMetadata("a-group", "a-member", 7), after)]
