"""The members of a trace that reports and policies need, for ``decode_members``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from knowledgepulse_schemas.trace import PrivacyLevel, Visibility


class MetadataSummary(msgspec.Struct, frozen=True):
    """The summary of ``metadata``."""

    task_domain: str
    visibility: Visibility
    privacy_level: PrivacyLevel
    success: bool
    agent_id: str | None = None
    framework: str | None = None


class OutcomeSummary(msgspec.Struct, frozen=True):
    """The summary of ``outcome``."""

    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]


class TraceSummary(msgspec.Struct, frozen=True):
    """The summary of a trace."""

    id: str
    metadata: MetadataSummary
    outcome: OutcomeSummary
