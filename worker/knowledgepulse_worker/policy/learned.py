"""A value that is learned from labels, and what it reads of a trace."""

from __future__ import annotations

import json
from base64 import b64decode
from enum import IntEnum
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, model_validator

from knowledgepulse_worker.policy.weights import DIMENSIONS, UnitFloat


class Reading(IntEnum):
    """What learned values read of a trace besides its dimensions; each includes those before."""

    NOTHING = 0
    COUNTS = 1
    WORDS = 2


FACTS_VERSION = 1
"""The version of the set of facts. A later one adds facts, and changes none."""

FACT_NAMES = (
    "steps", "characters", "calls", "tools", "thought_length", "observation_length", "result_length",
    "one_tool_share", "repeated_share", "failed_share", "recovered_share", "last_failed", "ends_observed",
    "declines", "asks",
)  # fmt: skip
"""The names of the facts, which :mod:`knowledgepulse_worker.scoring.facts` computes."""

TERMS = (*DIMENSIONS, *FACT_NAMES)
"""The names of all terms that a learned value may have."""


class Term(BaseModel):
    """The part of one fact or dimension in a learned value.

    Its value, less ``mean``, in units of ``deviation`` and clipped to ``-clip..clip``, is multiplied by
    ``weight``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    mean: FiniteFloat = Field(description="value that is subtracted")
    deviation: FiniteFloat = Field(gt=0, description="unit in which the difference is counted")
    weight: float = Field(ge=-100, le=100, description="what a unit adds to the logarithm of the odds")
    clip: float = Field(gt=0, le=100, description="largest number of units that count, on both sides")


BUCKETS = 1024
"""The number of buckets into which the words of traces are hashed."""


def _bucket_weights(text: str) -> str:
    try:
        weights = b64decode(text, validate=True)
    except ValueError:
        weights = b""
    if len(weights) != BUCKETS:
        raise ValueError(f"should be the base64 of {BUCKETS:,} bytes, as `kp-worker policy fit` writes it")
    return text


class Words(BaseModel):
    """The part of a trace's words in a learned value.

    Each distinct word counts as much as the bucket that it is hashed into. Their sum is divided by the square
    root of the number of words, so that long traces do not outweigh short ones. The usual sum is subtracted,
    as the mean is of a fact.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    unit: float = Field(gt=0, le=100, description="what a weight of 1 adds to the logarithm of the odds")
    mean: float = Field(ge=-1000, le=1000, description="mean of the labelled traces, which is subtracted")
    weights: Annotated[str, AfterValidator(_bucket_weights)] = Field(
        description="weight of each bucket, a signed byte, in base64"
    )
    strongest: dict[Annotated[int, Field(ge=0, lt=BUCKETS)], str] = Field(
        default_factory=dict,
        description="by bucket, the most frequent words of the labelled traces in it, with spaces between "
        "them, the strongest bucket first; they affect no score, but tell a person what was learned",
    )

    @cached_property
    def table(self) -> bytes:
        """The weight of each bucket, a signed byte."""
        return b64decode(self.weights)


def _finite(value: JsonValue) -> JsonValue:
    """Return a value without numbers that JSON lacks."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError("should have no nan and no infinite number") from None
    return value


class FitOrigin(BaseModel):
    """The origin of a learned value, for people; it affects no score, so unknown members are kept.

    They are JSON values, since the topic of policies keeps JSON, which has no NaN, infinity or date.
    """

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, Annotated[JsonValue, AfterValidator(_finite)]]

    on: str = Field(description="date of the fit")
    labels: dict[str, int] = Field(description="number of labels by source")
    traces: int = Field(description="number of labelled traces")
    kept: int = Field(description="number of these that are worth keeping")
    groups: int = Field(description="number of independent groups, such as tasks")
    agents: tuple[str, ...] = Field((), description="agents of the traces")
    auc: tuple[FiniteFloat, FiniteFloat, FiniteFloat] = Field(
        description="AUC on traces that were not fitted to, with its 95% interval"
    )
    within_groups: FiniteFloat | None = Field(
        None, description="AUC over pairs of traces of one group; missing if there are too few"
    )
    new_agents: FiniteFloat | None = Field(
        None, description="AUC over traces of agents that were not fitted to; missing if there are too few"
    )
    ids: str | None = Field(
        None,
        description="hashes of the traces' ids, by which an evaluation leaves them out; missing if unknown",
    )


class LearnedValue(BaseModel):
    """A value that was fitted to labels: the probability that a trace is worth keeping.

    It is the logistic function of ``intercept`` plus the terms and the words.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    share: UnitFloat = Field(0.0, description="its part in the score; with 0, the formula alone scores")
    facts_version: int = Field(ge=1, description="version of the facts that its terms name")
    intercept: float = Field(ge=-1000, le=1000, description="logarithm of the odds without terms and words")
    terms: dict[str, Term] = Field(description="terms by the name of their fact or dimension")
    words: Words | None = Field(None, description="part of a trace's words")
    prior: str | None = Field(
        None, description="prior that the weights are of, if they were not fitted to labels; affects no score"
    )
    fitted: FitOrigin | None = Field(None, description="origin of the value; affects no score")

    @model_validator(mode="after")
    def _known(self) -> LearnedValue:
        if self.facts_version > FACTS_VERSION:
            raise ValueError(f"facts_version {self.facts_version} belongs to a later release than this")
        if unknown := [name for name in self.terms if name not in TERMS]:
            raise ValueError(f"there is no fact or dimension {unknown[0]!r}; known: {', '.join(TERMS)}")
        return self
