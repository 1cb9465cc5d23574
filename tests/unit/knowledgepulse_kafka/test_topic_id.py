"""The lookup of a topic's id at its leaders."""

from types import SimpleNamespace
from typing import ClassVar
from uuid import UUID

import pytest
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError

from knowledgepulse_kafka import topic_id as module
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.topic_id import NO_ID, TopicIds

OLD, NEW = UUID(int=1), UUID(int=2)


class Client:
    """A fake of brokers 1 and 2, which lead partitions 0 and 1; the last answer is repeated."""

    answers: ClassVar = {}

    def __init__(self, _config):
        self.cluster = SimpleNamespace(leader_for_partition=lambda tp: tp.partition + 1)

    async def bootstrap(self): ...

    async def set_topics(self, topics): ...

    async def close(self): ...

    def force_metadata_update(self): ...

    async def send(self, node, request):
        answers = self.answers[node]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(topic=answer)


@pytest.fixture
async def ids(monkeypatch):
    """A factory of lookups with the given brokers' answers, in order."""
    monkeypatch.setattr(module, "new_client", Client)
    monkeypatch.setattr(module, "RETRY_PAUSE", 0)

    async def connected(**answers):
        Client.answers = {int(node.removeprefix("broker")): list(ids) for node, ids in answers.items()}
        topic = TopicIds(Config(), "raw")
        await topic.start()
        return topic

    return connected


async def test_the_leaders_must_agree(ids):
    topic = await ids(broker1=[(0, NEW)], broker2=[(0, OLD), (0, OLD), (0, NEW)])

    assert await topic.current([0, 1]) == NEW.bytes


async def test_a_previous_id_is_ignored(ids):
    """A lagging broker may briefly return it."""
    topic = await ids(broker1=[(0, OLD), (0, NEW), (0, OLD), (0, NEW)])

    assert [await topic.current([0]) for _ in range(3)] == [OLD.bytes, NEW.bytes, NEW.bytes]


async def test_an_id_that_comes_back_for_longer_than_leaders_lag_ends_the_lookup(ids, monkeypatch):
    """The one after it was that of a deleted topic, from a leader that lagged; the lookup waited for ever."""
    monkeypatch.setattr(module, "LAG_LIMIT", 0.01)
    topic = await ids(broker1=[(0, NEW), (0, OLD), (0, NEW)])
    assert [await topic.current([0]) for _ in range(2)] == [NEW.bytes, OLD.bytes]

    with pytest.raises(TopicError, match="raw: its leaders have returned an earlier id"):
        await topic.current([0])


@pytest.mark.parametrize("answer", [(3, NO_ID), KafkaConnectionError("away")])
async def test_the_lookup_waits_for_a_missing_topic_or_broker(ids, answer):
    topic = await ids(broker1=[answer, answer, (0, NEW)])

    assert await topic.current([0]) == NEW.bytes


@pytest.mark.parametrize("answer", [(0, NO_ID), IncompatibleBrokerVersion()])
async def test_the_id_is_empty_if_the_brokers_have_none_which_is_logged_once(ids, answer, caplog):
    topic = await ids(broker1=[answer])

    assert [await topic.current([0]), await topic.current([0])] == [b"", b""]
    assert [record.getMessage() for record in caplog.records] == [
        "raw: the brokers have no topic ids (Kafka 2.8); recreate it only when nobody lags"
    ]
