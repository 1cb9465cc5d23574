"""The members of a trace that reports and policies need, for ``decode_members``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from knowledgepulse_schemas.trace import Ending, PrivacyLevel, Visibility
from knowledgepulse_worker.records.valid_traces import read_assumed, read_ending, read_judged


class MetadataSummary(
    msgspec.Struct,
    frozen=True,
    rename={
        "raw_ending": "ending",
        "raw_source": "outcome_source",
        "raw_confidence_source": "confidence_source",
    },
):
    """The summary of ``metadata``; of members that may have any form, their JSON."""

    task_domain: str
    visibility: Visibility
    privacy_level: PrivacyLevel
    success: bool
    agent_id: str | None = None
    framework: str | None = None
    raw_ending: msgspec.Raw = msgspec.Raw(b"null")
    raw_source: msgspec.Raw = msgspec.Raw(b"null")
    raw_confidence_source: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def ending(self) -> Ending | None:
        """How the run ended; None if the trace does not tell it."""
        return read_ending(self.raw_ending)

    @property
    def judged(self) -> bool | None:
        """Whether somebody judged the run; None if the trace does not tell it."""
        return read_judged(self.raw_source)

    @property
    def assumed_confidence(self) -> bool:
        """Whether the confidence is the converter's default."""
        return read_assumed(self.raw_confidence_source)


class OutcomeSummary(msgspec.Struct, frozen=True):
    """The summary of ``outcome``."""

    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]


class TraceSummary(msgspec.Struct, frozen=True):
    """The summary of a trace."""

    id: str
    metadata: MetadataSummary
    outcome: OutcomeSummary
