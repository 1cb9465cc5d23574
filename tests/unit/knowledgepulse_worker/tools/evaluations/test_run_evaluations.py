"""Which scored records become events and spans."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.commit_outcome import Committed, Refused, Throttled
from knowledgepulse_kafka.errors import RefusedError
from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_kafka.records import Position
from knowledgepulse_schemas import ReasoningTrace, SpanContext
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.tools.common import base64_headers
from knowledgepulse_worker.tools.evaluations.evaluation_metrics import EvaluationMetrics
from knowledgepulse_worker.tools.evaluations.run_evaluations import Evaluations, send_scores
from support.otlp import logs_of, spans_of
from support.scored import copied_by_connect, dead_letter, published

TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "0ee19b7ec3c1b173"


@pytest.fixture(scope="module")
def scored(real_traces):
    """Return a scored record at an offset, with a span unless `span` is false."""
    trace = ReasoningTrace.model_validate_json(real_traces[0])
    score = Scorer().evaluate(trace)

    def make(offset, *, span=True, trace_id="kp:trace:1"):
        context = {"span_context": SpanContext(trace_id=TRACE, span_id=SPAN)} if span else {}
        changed = trace.model_copy(
            update={"id": trace_id, "metadata": trace.metadata.model_copy(update=context)}, deep=True
        )
        return published(offset, changed.to_json(), score, Policy())

    return make


@pytest.fixture
def metrics():
    return EvaluationMetrics(CollectorRegistry())


def test_a_score_is_sent_under_its_trace_id_and_what_is_skipped_is_counted(scored, metrics):
    evaluations = Evaluations("a-group", ("logs", "spans"), metrics)
    records = [scored(0), scored(1, span=False), dead_letter(2), replace(scored(3), headers=())]

    (event, span), *rest = map(evaluations.outputs, records)

    assert (event.topic, event.key, len(logs_of(event.value))) == ("logs", TRACE.encode(), 1)
    assert (span.topic, span.key, len(spans_of(span.value))) == ("spans", TRACE.encode(), 1)
    assert rest == [[]] * 3
    assert metrics.counts() == {"sent": 1, "refused": 0, "failed": 0, "without_span": 1, "foreign": 2}


def test_copies_with_base64_headers_are_skipped_and_told(scored, metrics, monkeypatch, caplog):
    monkeypatch.setattr(base64_headers, "_logged", LogInterval())
    evaluations = Evaluations("a-group", ("logs", "spans"), metrics)

    assert [evaluations.outputs(copied_by_connect(scored(offset))) for offset in range(2)] == [[], []]
    assert metrics.counts()["foreign"] == 2
    assert [message.split(": set ")[0] for message in caplog.messages] == [
        "rejected: the kp-* headers of skipped records are base64"
    ]


class ASession:
    """Reads one batch, and commits it as it is told to."""

    def __init__(self, records, stop, *outcomes):
        self.committed = []
        self._records = records
        self._stop = stop
        self._outcomes = list(outcomes)

    async def poll(self):
        self._stop.set()
        return self._records

    async def commit(self, records, positions):
        self.committed.append((len(records), positions))
        return self._outcomes.pop(0)

    async def lag(self):
        return 0


async def test_a_batch_is_committed_with_its_positions_and_again_after_a_quota(scored, metrics):
    stop, record = asyncio.Event(), scored(4)
    session = ASession([record], stop, Throttled("a quota"), Committed([0]))

    await send_scores(Evaluations("kp", ("logs", "spans"), metrics).send, metrics, session, stop)

    after = {(record.topic, record.partition): Position(record.offset + 1)}
    assert session.committed == 2 * [(2, after)]


async def test_an_event_that_a_broker_refuses_ends_the_command(scored, metrics):
    stop, error = asyncio.Event(), RefusedError()
    session = ASession([scored(4)], stop, Refused(error))

    with pytest.raises(RefusedError):
        await send_scores(Evaluations("kp", ("logs", "spans"), metrics).send, metrics, session, stop)
