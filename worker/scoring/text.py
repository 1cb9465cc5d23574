"""The text of a trace that is embedded."""

from __future__ import annotations

from hashlib import blake2b

from schemas import ReasoningTrace


def embedding_text(trace: ReasoningTrace) -> str:
    """Return the objective and the steps' contents, joined with single spaces.

    A step without content adds an empty part, as in the SDK, so there can be two spaces in a row.
    """
    return trace.task.objective + " " + " ".join(step.content or "" for step in trace.steps)


MAX_ID_LENGTH = 200
"""Maximum characters of a trace id stored with its score; the schema sets no bound."""


def bounded_id(trace_id: str) -> str:
    """Return a trace's id; beyond :data:`MAX_ID_LENGTH`, its beginning and a hash of the whole."""
    if len(trace_id) <= MAX_ID_LENGTH:
        return trace_id
    digest = blake2b(trace_id.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{trace_id[: MAX_ID_LENGTH - len(digest) - 1]}…{digest}"
