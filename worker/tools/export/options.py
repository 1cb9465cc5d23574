"""What a dataset is made of: the choices that all exports to one folder share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from knowledgepulse_worker.errors import InputError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

Format = Literal["messages", "atif"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""What is written besides Parquet."""

TABLE = "data"
"""The folder of the Parquet files; those of other formats have the format's name."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices that all exports to one folder share.

    Attributes:
        formats: what is written besides Parquet.
        domains: the traces' domains or profiles; empty for all.
        min_score: the least score.
        policy: digest of the policy that traces are rescored under; None keeps their own score.
        visibilities, privacy_levels: those that may leave; `private` does not even so.
        best: the number of traces with the highest scores that each export keeps; None for all.
        diverse: the number of traces that cover most, likewise.
        seed: of the splits, and of the first of the diverse traces.
        shares: of validation and test, in percent.
        similarity: the cosine from which on two traces are near-duplicates.
        embedder: what vectors are computed with.
        redacted: whether the traces are redacted copies.
        require_clean: whether traces stay in which the SDK's cleaning finds anything.
    """

    formats: tuple[Format, ...]
    domains: tuple[str, ...]
    min_score: float
    policy: str | None
    visibilities: tuple[str, ...]
    privacy_levels: tuple[str, ...]
    best: int | None
    diverse: int | None
    seed: int
    shares: tuple[float, float]
    similarity: float
    embedder: str
    redacted: bool
    require_clean: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the members as JSON has them."""
        return {name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()}


def require_same(place: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a dataset with other choices, or from another source.

    Raises:
        InputError: names what differs.
    """
    differing = [
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if differing:
        raise InputError(
            f"{place} is another dataset: {'; '.join(differing)}; repeat them, or export to another folder"
        )
