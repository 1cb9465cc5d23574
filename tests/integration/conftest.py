"""Topics of each test's own on the session's broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.streams import Stream
from worker.demo.brokers import Broker
from worker.settings import Settings


@pytest.fixture
def make_stream(broker: Broker, tmp_path: Path) -> Callable[..., Awaitable[Stream]]:
    """Make a stream: `await make_stream(partitions=4, embedding={...})`; it embeds by hashing by default."""

    async def make(partitions: int = 1, **sections: Mapping[str, Any]) -> Stream:
        name = f"test-{uuid4().hex[:8]}"
        values: dict[str, Any] = {
            "kafka": {"bootstrap_servers": broker.bootstrap_servers, "group": name},
            "topics": {
                topic: f"{name}-{topic}" for topic in ("raw", "contribute", "rejected", "dead_letter")
            },
            "embedding": {"backend": "hashing"},
        }
        for section, changes in sections.items():
            values[section] = values.get(section, {}) | dict(changes)
        stream = Stream(Settings(**values), tmp_path)
        await stream.create_topics(partitions)
        return stream

    return make
