"""What a transactional producer knows of the topics that it sends to."""

from knowledgepulse_worker.kafka.wire.producer import TransactionalProducer
from knowledgepulse_worker.records.throttle import Throttle


async def test_a_topic_is_missing_once_it_is_gone_and_not_before_the_client_has_heard_of_it(monkeypatch):
    """A producer that was started again asked for its topics, and the process ended at once."""
    producer = TransactionalProducer(throttle=Throttle(), transactional_id="id")
    asked_for: set[str] = producer.client._topics
    known = {"others"}
    monkeypatch.setattr(producer.client.cluster, "topics", lambda: known)

    asked_for |= {"contribute", "rejected"}
    assert producer.missing_topics() == []

    known |= {"contribute", "rejected"}
    assert producer.missing_topics() == []
    known -= {"rejected", "others"}
    assert producer.missing_topics() == ["rejected"]
    known |= {"rejected"}
    assert producer.missing_topics() == []
    await producer.stop()
