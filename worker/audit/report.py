"""What an audit found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Unaudited = Literal["trimmed", "rewind", "no_vector", "other_model"]
"""Why a novelty could not be recomputed.

- ``trimmed``: raw no longer has what came before, and the changelog has not all of it either;
- ``rewind``: the ledger was cut, and what was left of it then cannot be told;
- ``no_vector``: a vector is neither in the changelog nor could its text be embedded;
- ``other_model``: the same, since another model than the configured one made it.
"""


@dataclass(frozen=True)
class Difference:
    """What is wrong with the outputs of one raw record; names members and numbers, never content."""

    offset: int
    what: str


@dataclass
class PartitionReport:
    """What became of the records of one partition of the raw topic.

    Attributes:
        partition: its number.
        records: raw records that are there.
        outputs: outputs of these, repeats included.
        missing: offsets of committed records that have no output.
        waiting: records without an output that the group has not committed: they are still to come.
        repeated: outputs beyond the first of their record.
        differing: the records whose outputs are not what they should be.
        rescored: records whose outputs are unequal because the topic was read again from further back than
            the ledger reaches, which is a run of its own.
        unknown: outputs of no record that is there: it was trimmed, or the topic was made anew.
        outputs_trimmed: records without an output where the outputs' topics have been trimmed as well.
        deleted: first and last of each stretch of offsets that raw no longer has, without an output or an
            entry: records deleted before they were read, or what a transaction leaves (aborted records and
            markers), which cannot be told apart any more.
        other_policy: records scored under another policy than the settings', whose weights are not known;
            the score itself was not recomputed.
        near_threshold: offsets of records whose score is nearer to the threshold than an embedding can be
            repeated, so that their route cannot be confirmed from the text.
        novelty_exact: records whose novelty was recomputed from the ledger's vectors alone.
        novelty_embedded: those for which texts had to be embedded again.
        novelty_unaudited: those whose novelty could not be recomputed, by reason.
    """

    partition: int
    records: int = 0
    outputs: int = 0
    missing: list[int] = field(default_factory=list)
    waiting: int = 0
    repeated: int = 0
    differing: list[Difference] = field(default_factory=list)
    rescored: int = 0
    unknown: int = 0
    outputs_trimmed: int = 0
    deleted: list[tuple[int, int]] = field(default_factory=list)
    other_policy: int = 0
    near_threshold: list[int] = field(default_factory=list)
    novelty_exact: int = 0
    novelty_embedded: int = 0
    novelty_unaudited: dict[Unaudited, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What an audit found, by partition.

    Attributes:
        topic: the raw topic.
        partitions: in order.
        foreign: records of the output topics that name no source in this raw topic.
    """

    topic: str
    partitions: list[PartitionReport]
    foreign: int = 0

    @property
    def missing(self) -> int:
        """How many committed records have no output."""
        return sum(len(partition.missing) for partition in self.partitions)

    @property
    def waiting(self) -> int:
        """How many records are still to be scored."""
        return sum(partition.waiting for partition in self.partitions)

    @property
    def repeated(self) -> int:
        """How many outputs are there more than once."""
        return sum(partition.repeated for partition in self.partitions)

    @property
    def differing(self) -> int:
        """How many records have outputs that are not what they should be."""
        return sum(len(partition.differing) for partition in self.partitions)

    @property
    def rescored(self) -> int:
        """How many records were scored anew after a rewind."""
        return sum(partition.rescored for partition in self.partitions)

    @property
    def unknown(self) -> int:
        """How many outputs come from no record that is there, foreign ones included."""
        return self.foreign + sum(partition.unknown for partition in self.partitions)

    @property
    def deleted(self) -> int:
        """How many offsets that raw no longer has came to nothing, as far as can be told."""
        return sum(last - first + 1 for partition in self.partitions for first, last in partition.deleted)

    @property
    def ok(self) -> bool:
        """Whether nothing is missing and nothing differs."""
        return not self.missing and not self.differing

    def as_dict(self) -> dict[str, Any]:
        """Return the totals and the partitions, ready for JSON."""
        totals = ("ok", "missing", "repeated", "differing", "waiting", "rescored", "unknown", "deleted")
        return {name: getattr(self, name) for name in totals} | asdict(self)
