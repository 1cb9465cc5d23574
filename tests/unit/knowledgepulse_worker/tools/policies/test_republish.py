"""Republishing rescored records, on topics in memory."""

import asyncio
from contextlib import nullcontext

import msgspec
import pytest

from knowledgepulse_kafka.topics import Topic
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import score_trace
from knowledgepulse_worker.tools.policies.republish import check_targets, send_rescored
from knowledgepulse_worker.tools.policies.scored_topics import ScoredTopics
from knowledgepulse_worker.tools.terminal.arguments import Period
from support.scored import published
from support.written import Written

OLD, NEW = Policy(), Policy(threshold=0.45)
OWN = {"raw-traces", "contribute", "rejected", "dead-letter", "g-ledger-changelog", "g-replays"}


class Publisher:
    """Confirms each record at once.

    Attributes:
        sent: the records.
    """

    def __init__(self):
        self.sent = []

    async def send_record(self, record):
        self.sent.append(record)
        delivery = asyncio.get_running_loop().create_future()
        delivery.set_result(None)
        return delivery


@pytest.fixture
async def topics(published_traces):
    names = ("contribute", "rejected")
    reader = Written(*names, records=published_traces).reader
    return ScoredTopics(reader, [Topic(name, 1, 10**6) for name in names], lambda *_: None)


async def test_rescored_records_equal_those_of_a_worker_with_that_policy(topics, real_traces):
    publisher = Publisher()
    targets = {"contribute": Topic("contribute", 1, 10**6), "rejected": Topic("rejected", 1, 10**6)}

    rescored = await send_rescored(topics, Period(), NEW, targets, publisher)

    sent = {dict(record.headers)["kp-source"]: record for record in publisher.sent}
    assert len(publisher.sent) == len(sent) == rescored.traces == len(real_traces)
    for offset, line in enumerate(real_traces):
        trace = ReasoningTrace.model_validate_json(line)
        expected = published(offset, line, score_trace(trace, None, NEW), NEW)
        record = sent[f"raw-traces/0/{offset}".encode()]
        assert (record.topic, record.key, record.value) == (expected.topic, expected.key, expected.value)
        assert (record.timestamp_ms, record.headers) == (expected.timestamp, expected.headers)


async def test_keeps_producer_headers_and_replaces_the_workers(real_traces):
    headers = (("traceparent", b"00-1-2-01"), ("kp-policy", b"mine"), ("a", None))
    trace = ReasoningTrace.model_validate_json(real_traces[0])
    written = Written("rejected")
    written.append(published(7, real_traces[0], score_trace(trace, None, OLD), OLD, headers))
    scored = ScoredTopics(written.reader, [Topic("rejected", 1, 10**6)], lambda *_: None)
    publisher = Publisher()

    await send_rescored(
        scored, Period(), NEW, {"contribute": Topic("a", 1, 9), "rejected": Topic("b", 1, 9)}, publisher
    )

    (record,) = publisher.sent
    assert record.topic == "a"
    assert record.headers[:3] == headers
    assert [name for name, _ in record.headers[3:]] == ["kp-source", "kp-score", "kp-policy"]
    assert record.headers[-1][1] == NEW.digest.encode()
    assert msgspec.json.decode(record.headers[4][1])["threshold"] == 0.45


@pytest.mark.parametrize(("partitions", "kept"), [(1, 0), (3, None)])
async def test_keeps_the_partition_if_the_partition_counts_match(topics, partitions, kept):
    publisher = Publisher()

    targets = {"contribute": Topic("a", partitions, 10**6), "rejected": Topic("b", partitions, 10**6)}
    await send_rescored(topics, Period(), NEW, targets, publisher)

    assert {record.partition for record in publisher.sent} == {kept}


OUTPUTS = {"contribute", "rejected"}
USED = "is one of the workers' topics"


@pytest.mark.parametrize(
    ("names", "allowed", "message"),
    [
        (("contribute", "b"), set(), f"contribute {USED}; --live allows"),
        (("a", "raw-traces"), set(), f"raw-traces {USED}; --live allows"),
        (("raw-traces", "b"), OUTPUTS, f"raw-traces {USED}"),
        (("a", "g-ledger-changelog"), OUTPUTS, f"g-ledger-changelog {USED}"),
        (("a", "a"), set(), "a cannot be the target of two decisions"),
        (("contribute", "rejected"), OUTPUTS, None),
        (("a", "b"), set(), None),
    ],
)
def test_rejects_the_workers_topics_as_targets(names, allowed, message):
    with pytest.raises(InputError, match=f"^{message}") if message else nullcontext():
        check_targets(names, OWN, allowed)
