"""How a commit ends, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from knowledgepulse_kafka.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Committed:
    """The records and the positions are committed.

    Attributes:
        offsets: the offset of each record.
    """

    offsets: list[int]


@dataclass(frozen=True, slots=True)
class Refused:
    """Brokers refused batches, so nothing is committed.

    Attributes:
        error: names the records in question, and why each was refused.
    """

    error: RefusedError


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """The group has rebalanced, so nothing is committed.

    The partitions' owners read the records again, from the last committed positions.
    """


@dataclass(frozen=True, slots=True)
class Throttled:
    """A quota would have kept the transaction open for too long, so nothing is committed.

    The same records may be committed now: the next commit waits while the brokers throttle the producer.

    Attributes:
        reason: names the quota and the time.
    """

    reason: str


CommitOutcome: TypeAlias = Committed | Refused | Rebalanced | Throttled
"""How a commit ends, unless an error ends the producer."""
