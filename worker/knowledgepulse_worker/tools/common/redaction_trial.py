"""The redaction function of a worker, tried on a trace that needs none."""

from __future__ import annotations

from knowledgepulse_schemas import ScoredTrace
from knowledgepulse_worker.errors import RedactionError, SettingsError
from knowledgepulse_worker.redaction.copies import redacted_trace
from knowledgepulse_worker.redaction.function import SETTING
from knowledgepulse_worker.redaction.process import RedactionProcess


async def try_redaction(function: str, limit: float) -> None:
    """Have a function redact a harmless trace, in its own process.

    Args:
        function: ``module:function``.
        limit: time limit of the call in seconds.

    Raises:
        SettingsError: it cannot be imported, fails, or returns something else than a scored trace.
    """
    async with RedactionProcess(function, limit) as process:
        try:
            await redacted_trace(process.redact, _harmless_trace())
        except RedactionError as error:
            raise SettingsError(
                f"{SETTING}: {function}: made no copy of a harmless trace: {error}; it should take a trace "
                f"as a dict, and return one with a score within redaction.timeout, {limit:g} s"
            ) from error


def _harmless_trace() -> bytes:
    return ScoredTrace.new(
        objective="Add one and one.",
        steps=[{"type": "thought", "content": "One and one make two."}],
        result_summary="Two.",
        confidence=1.0,
        success=True,
        task_domain="other",
        quality_score=0.5,
    ).to_json()
