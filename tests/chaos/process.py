"""`kp-worker` as the rows run it: noisy embedder, deadly texts, faults on demand, mechanisms switched off.

python -m chaos.process run --config worker.toml
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.group import HeartbeatRequest

import worker.heartbeat
import worker.stream.run
from chaos.deadly import DeadlyEmbedder
from chaos.embedder import NoisyEmbedder
from support.child import start_child_in
from worker.cli import main
from worker.embedding import Embedder
from worker.lane.lanes import Lanes
from worker.lane.ledger import Ledger
from worker.settings import CacheSettings, EmbeddingSettings

ORDERS = "CHAOS_ORDERS"
"""The environment variable that names the file with the embedder's orders."""

WITHOUT = "CHAOS_WITHOUT"
"""The environment variable that names the mechanism that is switched off: a key of MECHANISMS."""

BLOCK_LOOP = signal.SIGUSR1
"""Blocks a child's event loop for a minute."""

CUT_HEARTBEAT = signal.SIGUSR2
"""Lets a child beat no more, while it goes on working."""

MUTE, UNMUTE = signal.SIGRTMIN, signal.SIGRTMIN + 1
"""Keep what a child tells the group's coordinator from it, while it reaches all else; and no longer."""

FAIL_CLIENT = signal.SIGRTMIN + 2
"""Let a child's client fail by a defect of its own at its next heartbeat to the group."""


def _without_ledger() -> None:
    """Score what is delivered again as if it were new."""
    Ledger.find = lambda self, record: None  # type: ignore[method-assign]
    Ledger.__contains__ = lambda self, offset: False  # type: ignore[method-assign]


def _without_watermark() -> None:
    """Commit what was taken, confirmed or not."""
    Lanes.watermarks = lambda self: {  # type: ignore[method-assign]
        partition: lane.next_offset for partition, lane in self._lanes.items()
    }


MECHANISMS = {"ledger": _without_ledger, "watermark": _without_watermark}


def _load_noisy(settings: EmbeddingSettings, cache: CacheSettings, parallel: int) -> Embedder | None:
    embedder = _load_embedder(settings, cache, parallel)
    return None if embedder is None else DeadlyEmbedder(NoisyEmbedder(embedder, Path(os.environ[ORDERS])))


def _block_loop(number: int, frame: FrameType | None) -> None:
    time.sleep(60)


async def _tell_unless_muted(coordinator: GroupCoordinator, request: Any) -> Any:
    if _defective and isinstance(request, HeartbeatRequest):
        raise RuntimeError("a defect")
    if _muted:
        coordinator.coordinator_dead()
        raise KafkaConnectionError("muted")
    return await _tell(coordinator, request)


def _mute(number: int, frame: FrameType | None) -> None:
    global _muted  # noqa: PLW0603 - a process has one voice
    _muted = number == MUTE


def _fail_client(number: int, frame: FrameType | None) -> None:
    global _defective  # noqa: PLW0603 - likewise
    _defective = True


def _cut_heartbeat(number: int, frame: FrameType | None) -> None:
    worker.heartbeat.os = SimpleNamespace(write=lambda descriptor, beat: len(beat))  # type: ignore[assignment]


_load_embedder = worker.stream.run.load_embedder
_tell = GroupCoordinator._send_req
_muted = _defective = False

if __name__ == "__main__":
    start_child_in("chaos.process")
    worker.stream.run.load_embedder = _load_noisy
    signal.signal(BLOCK_LOOP, _block_loop)
    signal.signal(CUT_HEARTBEAT, _cut_heartbeat)
    GroupCoordinator._send_req = _tell_unless_muted
    signal.signal(MUTE, _mute)
    signal.signal(UNMUTE, _mute)
    signal.signal(FAIL_CLIENT, _fail_client)
    if os.environ.get(WITHOUT):
        MECHANISMS[os.environ[WITHOUT]]()
    main()
