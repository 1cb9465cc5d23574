"""The error by which a topic does not accept a record, which aiokafka does not know (KIP-467)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import BrokerResponseError
from aiokafka.producer.sender import SendProduceReqHandler

from knowledgepulse_kafka.private_parts import SEND_BATCHES, SENDER, SENT_BATCHES

_Client = TypeVar("_Client")


class InvalidRecord(BrokerResponseError):  # type: ignore[misc]  # noqa: N818 - aiokafka is untyped; its naming
    """A topic does not accept a record: it has no key, and the topic is compacted (KIP-467)."""

    errno = 87
    message = "INVALID_RECORD"


def telling_refusals(client: _Client) -> _Client:
    """Return a client of any kind; if it is a producer, it ends a refused batch with an InvalidRecord."""
    if isinstance(client, AIOKafkaProducer):
        SEND_BATCHES.replace_globals(SENDER.of(client), SendProduceReqHandler=_Sending)
    return client


class _Sending(SendProduceReqHandler):  # type: ignore[misc]  # aiokafka is untyped
    """Sends batches."""

    def handle_response(self, response: Any) -> None:
        """End the batches by the broker's answer."""
        codes = {
            TopicPartition(topic, number): code
            for topic, partitions in response.topics
            for number, code, *_ in partitions
        }
        batches: Mapping[TopicPartition, Any] = SENT_BATCHES.of(self)
        refused = {place for place in batches if codes.get(place) == InvalidRecord.errno}
        for place in refused:
            batches[place].failure(exception=InvalidRecord())
        SENT_BATCHES.replace(self, {place: batch for place, batch in batches.items() if place not in refused})
        super().handle_response(response)
