"""This package's names for what the clients take, return and raise; the types are aiokafka's."""

from typing import TypeAlias

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata

Place: TypeAlias = TopicPartition
"""A topic and the number of one of its partitions."""

CommittedPosition: TypeAlias = OffsetAndMetadata
"""A group's position in a partition with the text that its committer added to it."""

RequestError: TypeAlias = KafkaError
"""A broker refused a request, or none answered it."""

NotAssignedError: TypeAlias = IllegalStateError
"""The partition has been reassigned to another member meanwhile."""
