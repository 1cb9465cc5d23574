"""`kp-worker` for the rows, with a noisy embedder, deadly texts, faults on demand and disabled mechanisms.

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

import knowledgepulse_worker.lane.lane
import knowledgepulse_worker.process.heartbeat
import knowledgepulse_worker.stream.reload
import knowledgepulse_worker.stream.worker
from chaos.embedder import NoisyEmbedder
from knowledgepulse_worker.cli.entry import main
from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.kafka.wire.producer import TransactionalProducer
from knowledgepulse_worker.lane.ledger import LedgerContent
from knowledgepulse_worker.settings import CacheSettings, EmbeddingSettings
from support.child import start_child_in

ORDERS = "CHAOS_ORDERS"
"""Environment variable with the file of the embedder's orders."""

WITHOUT = "CHAOS_WITHOUT"
"""Environment variable with the mechanism to switch off: a key of MECHANISMS."""

BLOCK_LOOP = signal.SIGUSR1
"""Blocks a child's event loop for a minute."""

CUT_HEARTBEAT = signal.SIGUSR2
"""Stops a child's heartbeat, while it continues to work."""

MUTE, UNMUTE = signal.SIGRTMIN, signal.SIGRTMIN + 1
"""Block a child's requests to the group coordinator only, and unblock them."""

FAIL_CLIENT = signal.SIGRTMIN + 2
"""Raise an unexpected error in a child's client at its next heartbeat to the group."""


def _without_ledger() -> None:
    """Score the first record of a lane as if there were none before it."""
    content = LedgerContent({}, [], None)
    knowledgepulse_worker.lane.lane.valid_content = lambda *_, **__: content  # type: ignore[assignment]


def _without_position() -> None:
    """Commit transactions without the group's positions."""

    async def commit_nothing(*_: object) -> None:
        pass

    TransactionalProducer.send_group_offsets = commit_nothing  # type: ignore[method-assign, assignment]


MECHANISMS = {"ledger": _without_ledger, "position": _without_position}


def _load_noisy(settings: EmbeddingSettings, cache: CacheSettings, parallel: int) -> Embedder | None:
    embedder = _load_embedder(settings, cache, parallel)
    return None if embedder is None else NoisyEmbedder(embedder, Path(os.environ[ORDERS]))


def _block_loop(number: int, frame: FrameType | None) -> None:
    time.sleep(60)


async def _send_unless_muted(coordinator: GroupCoordinator, request: Any) -> Any:
    if _defective and isinstance(request, HeartbeatRequest):
        raise RuntimeError("a defect")
    if _muted:
        coordinator.coordinator_dead()
        raise KafkaConnectionError("muted")
    return await _send_request(coordinator, request)


def _mute(number: int, frame: FrameType | None) -> None:
    global _muted  # noqa: PLW0603 - signal handlers have no other place for state
    _muted = number == MUTE


def _fail_client(number: int, frame: FrameType | None) -> None:
    global _defective  # noqa: PLW0603 - as above
    _defective = True


def _cut_heartbeat(number: int, frame: FrameType | None) -> None:
    knowledgepulse_worker.process.heartbeat.os = SimpleNamespace(write=lambda descriptor, beat: len(beat))  # type: ignore[assignment]


_load_embedder = knowledgepulse_worker.stream.worker.load_embedder
_send_request = GroupCoordinator._send_req
_muted = _defective = False

if __name__ == "__main__":
    start_child_in("chaos.process")
    knowledgepulse_worker.stream.worker.load_embedder = _load_noisy
    knowledgepulse_worker.stream.reload.INTERVAL = 0.2
    signal.signal(BLOCK_LOOP, _block_loop)
    signal.signal(CUT_HEARTBEAT, _cut_heartbeat)
    GroupCoordinator._send_req = _send_unless_muted
    signal.signal(MUTE, _mute)
    signal.signal(UNMUTE, _mute)
    signal.signal(FAIL_CLIENT, _fail_client)
    if os.environ.get(WITHOUT):
        MECHANISMS[os.environ[WITHOUT]]()
    main()
