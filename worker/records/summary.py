"""The members of a trace that reports and policies need; for :func:`worker.records.decode.decode_members`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from schemas.trace import Visibility


class MetadataSummary(msgspec.Struct, frozen=True):
    """The summary of ``metadata``."""

    task_domain: str
    visibility: Visibility
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
