"""What all sections have in common."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Section(BaseModel):
    """A section of the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _topic(value: str) -> str:
    """Require a name that Kafka accepts for a topic."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", value) or value in {".", ".."}:
        raise ValueError("should be 1 to 249 ASCII letters, digits, '.', '_' and '-'")
    return value


TopicName = Annotated[str, AfterValidator(_topic)]
"""A topic's name."""
