"""What a worker's child does in the rows: noisy embedding, faults on demand and disabled mechanisms."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Any

from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaConnectionError

import knowledgepulse_worker.lane.partition_ledger
import knowledgepulse_worker.process.heartbeat
import knowledgepulse_worker.stream.reload
import knowledgepulse_worker.stream.worker
from chaos.embedder import NoisyEmbedder
from chaos.process import (
    HELD,
    HOLD,
    HOLD_START,
    MUTE,
    ORDERS,
    RELEASE,
    UNMUTE,
    WITHOUT,
)
from knowledgepulse_kafka.producer import TransactionalProducer
from knowledgepulse_worker.embedding import Embedder
from knowledgepulse_worker.lane.ledger import LedgerContent
from knowledgepulse_worker.settings import CacheSettings, EmbeddingSettings


def install_faults() -> None:
    """Modify this process, and let signals inject its faults."""
    knowledgepulse_worker.embedding.load.load_embedder = _load_noisy
    knowledgepulse_worker.stream.reload.RELOAD_INTERVAL = 0.2
    GroupCoordinator._send_req = _send_unless_muted
    TransactionalProducer.send_group_offsets = _send_group_offsets_unless_held  # type: ignore[method-assign, assignment]
    if HOLD_START in os.environ:
        TransactionalProducer.start = _start_unless_held  # type: ignore[method-assign]
    for number in (MUTE, UNMUTE):
        signal.signal(number, _mute)
    for number in (*HOLD.values(), RELEASE):
        signal.signal(number, _hold)
    if os.environ.get(WITHOUT):
        MECHANISMS[os.environ[WITHOUT]]()


def _without_ledger() -> None:
    """Score the first record of a lane as if there were none before it."""
    content = LedgerContent({}, {}, [], None)
    knowledgepulse_worker.lane.partition_ledger.valid_content = lambda *_, **__: content  # type: ignore[assignment]


MECHANISMS = {"ledger": _without_ledger}


def _load_noisy(settings: EmbeddingSettings, cache: CacheSettings, parallel: int) -> Embedder | None:
    embedder = _load_embedder(settings, cache, parallel)
    return None if embedder is None else NoisyEmbedder(embedder, Path(os.environ[ORDERS]))


async def _send_unless_muted(coordinator: GroupCoordinator, request: Any) -> Any:
    if _muted:
        coordinator.coordinator_dead()
        raise KafkaConnectionError("muted")
    return await _send_request(coordinator, request)


def _mute(number: int, frame: FrameType | None) -> None:
    global _muted  # noqa: PLW0603 - signal handlers have no other place for state
    _muted = number == MUTE


async def _start_unless_held(producer: TransactionalProducer) -> None:
    while Path(os.environ[HOLD_START]).exists():  # noqa: ASYNC240 - another process ends it
        await asyncio.sleep(0.01)
    await _start_producer(producer)


async def _send_group_offsets_unless_held(*arguments: Any) -> None:
    await _wait_while_held("positions")
    await _send_group_offsets(*arguments)
    await _wait_while_held("commit")


async def _wait_while_held(place: str) -> None:
    if _held == place:
        logging.getLogger(__name__).warning("%s before the %s", HELD, place)
    while _held == place:
        await asyncio.sleep(0.01)


def _hold(number: int, frame: FrameType | None) -> None:
    global _held  # noqa: PLW0603 - as above
    _held = next((place for place, signal in HOLD.items() if signal == number), None)


_load_embedder = knowledgepulse_worker.embedding.load.load_embedder
_send_request = GroupCoordinator._send_req
_start_producer = TransactionalProducer.start
_send_group_offsets = TransactionalProducer.send_group_offsets
_muted = False
_held: str | None = None
