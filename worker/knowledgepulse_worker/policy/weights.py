"""The weights of the dimensions, which sum to 1."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

DEFAULT_DOMAIN = "default"

UnitFloat = Annotated[float, Field(ge=0, le=1)]


class Weights(BaseModel):
    """The dimensions' weights in the score, which sum to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    complexity: UnitFloat = Field(description="weight of the kinds and number of steps")
    novelty: UnitFloat = Field(description="weight of the distance to earlier traces")
    tool_diversity: UnitFloat = Field(description="weight of the number of different tools per step")
    outcome_confidence: UnitFloat = Field(description="weight of the agent's confidence in its outcome")

    @model_validator(mode="after")
    def _sum_to_one(self) -> Weights:
        total = math.fsum(weight for _, weight in self)
        if not math.isclose(total, 1, abs_tol=1e-9):
            terms = " + ".join(f"{name} {weight!r}" for name, weight in self)
            raise ValueError(f"the weights must sum to 1, but {terms} = {total!r}")
        return self


DIMENSIONS = tuple(Weights.model_fields)
"""The names of a score's dimensions, in the order of the formula."""


def _weights(*weights: float) -> Weights:
    return Weights(**dict(zip(DIMENSIONS, weights, strict=True)))


REFERENCE_WEIGHTS = {
    DEFAULT_DOMAIN: _weights(0.25, 0.35, 0.15, 0.25),
    "finance": _weights(0.20, 0.25, 0.10, 0.45),
    "code": _weights(0.20, 0.30, 0.30, 0.20),
    "medical": _weights(0.15, 0.20, 0.10, 0.55),
    "customer_service": _weights(0.20, 0.30, 0.20, 0.30),
}
"""The weight profiles of the KnowledgePulse SDK 0.1.1."""
