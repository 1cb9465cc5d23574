"""The generated parts of documents: backends, Kafka's clients and releases, settings, metrics and more.

They stand in the documents between ``<!-- generated: NAME -->`` and ``<!-- end -->``, so that they can be
read in the repository. `make tables` writes them, and a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from generator import (
    backends,
    chart,
    clients,
    commands,
    facts,
    formats,
    interoperability,
    kafka_releases,
    metrics,
    producers,
    python,
    settings,
    states,
    weights,
)
from generator.staging import PART
from interoperability.parts import PARTS

TABLES: dict[str, Callable[[], str]] = {
    "backends": backends.table,
    "chart": chart.table,
    "clients_keys": clients.keys,
    "clients_reads": clients.reads,
    "commands": commands.page,
    "facts": facts.table,
    "formats": formats.table,
    **{f"interoperability_{part}": partial(interoperability.table, part) for part in PARTS},
    "kafka_releases": kafka_releases.table,
    "metrics": metrics.page,
    "producers_documents": producers.documents,
    "producers_spans": producers.spans,
    "python": python.page,
    "recordings": formats.recordings,
    "settings": settings.page,
    "states": states.table,
    "weights": weights.table,
}


def renewed(text: str) -> str:
    """Return a document with its generated parts as the code has them now."""
    return PART.sub(lambda part: f"<!-- generated: {part[1]} -->\n{_table(part[1])}\n<!-- end -->", text)


def _table(name: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", f"\n{TABLES[name]()}\n\n").removesuffix("\n")
