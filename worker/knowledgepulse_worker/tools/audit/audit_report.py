"""The report of an audit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

UnauditedReason = Literal["trimmed", "rewind", "no_vector", "other_model"]
"""Why a novelty could not be recomputed.

- ``trimmed``: earlier records were deleted from the raw topic, and some of their entries from the changelog;
- ``rewind``: the ledger was cut, and its remaining content at that time is unknown;
- ``no_vector``: a vector is not in the changelog, and its text could not be embedded;
- ``other_model``: a vector is from another model than the configured one, and its text could not be embedded.
"""


@dataclass(frozen=True)
class Difference:
    """The defects of one raw record's outputs, which name fields and numbers but never content."""

    offset: int
    what: str


@dataclass
class PartitionReport:
    """The audit of one partition of the raw topic.

    Attributes:
        outputs: the number of outputs, including repeats.
        missing: the offsets of committed records without an output.
        waiting: the number of uncommitted records without an output, which are still to be scored.
        repeated: the number of outputs beyond the first of their record.
        repeats: the offsets of records with several outputs, without those whose further outputs are copies
            that no transaction wrote, as releases before 0.3.0 could publish them.
        differing: the defects of records' outputs.
        without_entry: the offsets of scored records that should have a ledger entry but have none. Later
            records are compared with fewer vectors than they should be.
        rescored: the number of records with unequal outputs because the topic was reread from before the
            ledger.
        unknown: the number of outputs whose record no longer exists, because it was deleted or the topic was
            recreated.
        outputs_trimmed: the number of records without an output where the output topics have been trimmed.
        deleted: the first and last offset of each range that was deleted from the raw topic and has neither
            outputs nor entries. Records deleted before they were read, and the aborted records and markers of
            transactions, can no longer be distinguished.
        unknown_policy: the number of records whose policy was not kept, so that the score was not recomputed.
        near_threshold: the offsets of records whose score is so close to the threshold that the precision of
            a recomputed embedding cannot confirm the decision.
        novelty_exact: the number of records whose novelty was recomputed from the ledger's vectors alone.
        novelty_embedded: the number of records whose novelty needed texts to be embedded again.
        novelty_unaudited: the number of records whose novelty could not be recomputed, by reason.
        shares_unaudited: the number of records under a share whose rank could not be recomputed, because
            the scores before them are not all known.
        shares_begun: the number of times that the last scores of a domain began anew without another policy,
            because the ledger was cut.
    """

    partition: int
    records: int = 0
    outputs: int = 0
    missing: list[int] = field(default_factory=list)
    waiting: int = 0
    repeated: int = 0
    repeats: list[int] = field(default_factory=list)
    differing: list[Difference] = field(default_factory=list)
    without_entry: list[int] = field(default_factory=list)
    rescored: int = 0
    unknown: int = 0
    outputs_trimmed: int = 0
    deleted: list[tuple[int, int]] = field(default_factory=list)
    unknown_policy: int = 0
    near_threshold: list[int] = field(default_factory=list)
    novelty_exact: int = 0
    novelty_embedded: int = 0
    novelty_unaudited: dict[UnauditedReason, int] = field(default_factory=dict)
    shares_unaudited: int = 0
    shares_begun: int = 0


@dataclass(frozen=True)
class AuditReport:
    """The report of an audit.

    Attributes:
        topic: the raw topic.
        partitions: the reports of its partitions.
        foreign: the number of output records without a source in this raw topic.
        compacted: the output topics that keep only the last output for each key.
    """

    topic: str
    partitions: list[PartitionReport]
    foreign: int = 0
    compacted: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Number of committed records without an output."""
        return sum(len(partition.missing) for partition in self.partitions)

    @property
    def waiting(self) -> int:
        """Number of records still to be scored."""
        return sum(partition.waiting for partition in self.partitions)

    @property
    def repeated(self) -> int:
        """Number of repeated outputs."""
        return sum(partition.repeated for partition in self.partitions)

    @property
    def differing(self) -> int:
        """Number of records with defective outputs."""
        return sum(len(partition.differing) for partition in self.partitions)

    @property
    def without_entry(self) -> int:
        """Number of records with outputs but without a ledger entry."""
        return sum(len(partition.without_entry) for partition in self.partitions)

    @property
    def rescored(self) -> int:
        """Number of records rescored after a rewind."""
        return sum(partition.rescored for partition in self.partitions)

    @property
    def unknown(self) -> int:
        """Number of outputs whose record does not exist, including foreign ones."""
        return self.foreign + sum(partition.unknown for partition in self.partitions)

    @property
    def deleted(self) -> int:
        """Number of offsets deleted from the raw topic, apparently without an output."""
        return sum(last - first + 1 for partition in self.partitions for first, last in partition.deleted)

    @property
    def ok(self) -> bool:
        """Whether every record has one output, which is right and has its ledger entry.

        Former releases' identical copies of an output do not count.
        """
        repeats = any(partition.repeats for partition in self.partitions)
        return not (self.missing or repeats or self.differing or self.without_entry)

    def as_dict(self) -> dict[str, Any]:
        """Return the totals and the partitions as plain JSON."""
        totals = ("ok", "missing", "repeated", "differing", "without_entry", "waiting", "rescored")
        outside = ("unknown", "deleted")
        return {name: getattr(self, name) for name in (*totals, *outside)} | asdict(self)
