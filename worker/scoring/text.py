"""What of a trace is embedded."""

from __future__ import annotations

from schemas import ReasoningTrace


def embedding_text(trace: ReasoningTrace) -> str:
    """Return the objective and the contents of the steps, separated by single spaces.

    A step without content adds an empty part, as in the SDK, so two spaces can follow each other.
    """
    return trace.task.objective + " " + " ".join(step.content or "" for step in trace.steps)
