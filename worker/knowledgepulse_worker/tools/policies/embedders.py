"""The embedders that computed the traces' novelty; a threshold is valid for one embedder only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import EmbeddingSettings
from knowledgepulse_worker.terminal.counts import counted
from knowledgepulse_worker.terminal.printable import printable
from knowledgepulse_worker.tools.score.offline import embedder_name

_UNRECORDED = "not recorded"
"""Of a record of a topic: its ``kp-score`` header does not say."""


def embedders_of(records: Iterable[ScoredRecord]) -> dict[str, int]:
    """Return the numbers of traces by embedder, the most frequent first."""
    return dict(Counter(record.embedder or _UNRECORDED for record in records).most_common())


def described(embedders: Mapping[str, int]) -> str:
    """Return the embedders and their numbers of traces in words; text from files is escaped."""
    return "; ".join(f"{printable(name)} ({counted(count, 'trace')})" for name, count in embedders.items())


def embedder_warning(records: Iterable[ScoredRecord], settings: EmbeddingSettings) -> str | None:
    """Return a warning if the traces' novelty is not of one embedder, or not of the configured one."""
    embedders, configured = embedders_of(records), embedder_name(settings)
    if len(embedders) > 1:
        return f"these scores come from several embedders and cannot be compared: {described(embedders)}"
    (name,) = embedders
    if name in (configured, _UNRECORDED):
        return None
    return (
        f"these scores were computed with {printable(name)}, but the settings' embedder is {configured}, "
        "which gives other scores"
    )
