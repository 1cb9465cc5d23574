"""The types of aiokafka that programs with this package's clients use."""

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
)
from aiokafka.structs import OffsetAndMetadata

__all__ = [
    "ConsumerRebalanceListener",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InvalidSessionTimeoutError",
    "KafkaError",
    "OffsetAndMetadata",
    "TopicPartition",
]
