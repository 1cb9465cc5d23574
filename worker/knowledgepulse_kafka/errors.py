"""The package's exceptions.

::

    ClientError                   base of all errors; the message says what to do, and quotes no record
    ├── ConfigurationError        a file or a function that the configuration names is unusable
    ├── NoBrokerError             no broker answers
    ├── SecurityError             a certificate, a login or a right is refused; names the setting or the right
    ├── BrokerError               a setting or the release of the brokers does not allow what the client needs
    ├── TopicError                a topic is missing, or cannot be read
    ├── MembershipError           a group does not accept the client as a member
    └── DeliveryError             the brokers did not confirm a record or a transaction
        ├── TooLargeError         the broker rejected the record, or its batch, as too large
        ├── TimestampError        the broker rejected the record's timestamp
        ├── UnacceptableError     the broker rejected the record for another property
        ├── RefusedError          brokers refused batches of the transaction, which was aborted
        ├── ThrottledError        a quota would have kept the transaction open, which was aborted
        ├── LostPartitionsError   the group has rebalanced, so the transaction was aborted
        └── IdleError             the brokers had forgotten the idle producer, which has started again

The errors of single requests are in :mod:`knowledgepulse_kafka.client_types`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio  # not at run time: it would slow down `--help`

    from knowledgepulse_kafka.records import OutputRecord


class ClientError(Exception):
    """Base of the package's errors; the message is written for users."""


class ConfigurationError(ClientError):
    """A file or a function that the configuration names is unusable."""


class NoBrokerError(ClientError):
    """No Kafka broker answers, or none was found and none could be started."""


class SecurityError(ClientError):
    """A broker refuses a login, certificate or right, or its own certificate is not trusted."""


class BrokerError(ClientError):
    """A setting or the release of the brokers does not allow what the client needs."""


class TopicError(ClientError):
    """A topic is missing or unsuitable, or cannot be read."""


class MembershipError(ClientError):
    """A group does not accept the client as a member, or the client has failed for good."""


class DeliveryError(ClientError):
    """The brokers rejected a record, or did not confirm a record or a transaction."""


class TooLargeError(DeliveryError):
    """The record exceeds its topic's size limit, alone or together with the rest of its batch."""


class TimestampError(DeliveryError):
    """The topic rejects the record's timestamp (``message.timestamp.*.max.ms``)."""


class UnacceptableError(DeliveryError):
    """The topic rejects the record for another property; a compacted topic takes no record without a key."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a batch.

    Attributes:
        records: the records of the batch. If there are several, any of them may be at fault.
        cause: the broker's error: a TooLargeError, a TimestampError or an UnacceptableError.
    """

    records: Sequence[OutputRecord]
    cause: DeliveryError


class RefusedError(DeliveryError):
    """Brokers refused batches, so the transaction was aborted.

    Attributes:
        refusals: the refusals in all partitions. A broker judges no batch behind one that it refused.
    """

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__("; ".join(dict.fromkeys(str(refusal.cause) for refusal in refusals)))
        self.refusals = refusals


class ThrottledError(DeliveryError):
    """A quota of the brokers would have kept the transaction open for too long."""


class LostPartitionsError(DeliveryError):
    """The group has rebalanced, so other members may own the partitions."""


class IdleError(DeliveryError):
    """The producer was idle for so long that the brokers have forgotten it; it has started again."""


@contextmanager
def first_of_group() -> Iterator[None]:
    """Raise the first error of a task group as itself, so that its type and its message count."""
    try:
        yield
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors


def retrieve_exception(delivery: asyncio.Future[Any]) -> None:
    """Mark an exception as retrieved, since failures after the first are never awaited."""
    if not delivery.cancelled():
        delivery.exception()
