"""The section of redaction."""

from __future__ import annotations

from pydantic import Field

from knowledgepulse_worker.function_reference import FUNCTION_REFERENCE
from knowledgepulse_worker.settings.section import Section


class RedactionSettings(Section):
    """The function that redacts contributed traces for a separate topic."""

    function: str | None = Field(
        None,
        pattern=FUNCTION_REFERENCE,
        description="`module:function` that takes each contributed trace as a dict and returns the redacted "
        "copy, which is published to `topics.redacted`",
    )
    timeout: float = Field(
        5.0,
        gt=0,
        le=10,
        description="seconds that a call may take; a trace that takes longer gets no redacted copy",
    )
