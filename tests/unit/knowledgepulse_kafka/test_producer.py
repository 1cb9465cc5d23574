"""What a transactional producer knows of the topics that it sends to."""

import pytest
from aiokafka import TopicPartition

from knowledgepulse_kafka.producer import TransactionalProducer
from knowledgepulse_kafka.throttle import Throttle


@pytest.fixture
async def producer():
    """A producer that is not connected."""
    producer = TransactionalProducer(throttle=Throttle(), transactional_id="id")
    yield producer
    await producer.stop()


async def test_a_topic_is_missing_once_it_is_gone_and_not_before_the_client_has_heard_of_it(
    producer, monkeypatch
):
    """A producer that was started again asked for its topics, and the process ended at once."""
    known = set()
    monkeypatch.setattr(producer.client.cluster, "topics", lambda: known)

    async def partitions_for(topic):
        assert producer.missing_topics() == [], "the client asks for it first"
        known.add(topic)
        return {0}

    monkeypatch.setattr(producer, "partitions_for", partitions_for)
    for topic in ("contribute", "rejected"):
        await producer._require(TopicPartition(topic, 0))
    assert producer.missing_topics() == []

    known.remove("rejected")
    assert producer.missing_topics() == ["rejected"]
