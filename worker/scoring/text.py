"""What of a trace is embedded."""

from __future__ import annotations

from hashlib import blake2b

from schemas import ReasoningTrace


def embedding_text(trace: ReasoningTrace) -> str:
    """Return the objective and the contents of the steps, separated by single spaces.

    A step without content adds an empty part, as in the SDK, so two spaces can follow each other.
    """
    return trace.task.objective + " " + " ".join(step.content or "" for step in trace.steps)


MAX_ID_LENGTH = 200
"""Characters of a trace's id that are kept beside its score; the schema sets no bound of its own."""


def bounded_id(trace_id: str) -> str:
    """Return a trace's id; of one beyond :data:`MAX_ID_LENGTH` its beginning and a hash of the whole."""
    if len(trace_id) <= MAX_ID_LENGTH:
        return trace_id
    digest = blake2b(trace_id.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{trace_id[: MAX_ID_LENGTH - len(digest) - 1]}…{digest}"
