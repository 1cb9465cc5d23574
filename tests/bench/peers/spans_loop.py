"""The plain loop on aiokafka that converts spans: python -m bench.peers.spans_loop SERVERS SOURCE TARGET.

A run is complete with its root span. Open runs are kept in memory, and lost with the process.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from aiokafka.structs import ConsumerRecord

from bench.peers.aiokafka_loop import run
from bench.peers.loop import parse_task
from schemas.convert import convert
from worker.tools.assemble.exports import read


class Runs:
    """Open runs by trace id, which is the record key."""

    def __init__(self) -> None:
        self._open: defaultdict[bytes, list[Any]] = defaultdict(list)

    def traces(self, record: ConsumerRecord) -> Iterator[tuple[bytes, bytes]]:
        """Add a record's spans; yield ids and values of the traces that it completes."""
        if record.key is None:
            return
        exports = read(record.value)
        self._open[record.key] += exports
        if any(map(_has_root, exports)):
            for conversion in convert(self._open.pop(record.key), "otlp"):
                yield conversion.trace.id.encode(), conversion.trace.to_json()


def _has_root(export: dict[str, Any]) -> bool:
    return any(
        not span.get("parentSpanId")
        for resource in export["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    )


if __name__ == "__main__":
    asyncio.run(run(parse_task(), Runs().traces))
