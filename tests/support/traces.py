"""The 154 real traces that the reference scored; the demo has such runs, made by `kp-worker convert`."""

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"

LABELS = DATA / "reference_labels.jsonl"
"""The rewards of their runs."""

SCORES = DATA / "reference_scores.jsonl"
"""The scores that the KnowledgePulse SDK 0.1.1 gave them in a single pass, starting with an empty cache."""

TRACES = DATA / "reference_traces.jsonl"


def real_traces() -> list[bytes]:
    """Return the traces as the values of Kafka records."""
    return TRACES.read_bytes().splitlines()
