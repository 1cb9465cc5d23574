"""Quotas that a broker enforces on clients (KIP-546)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Float64, Int16, Int32, Schema, String

from knowledgepulse_kafka.own_request import OwnRequest
from support.streams import admin_of

PRODUCER, CONSUMER, MUTATIONS = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"

_TEXT = String("utf-8")
_ENTITY = Array(("type", _TEXT), ("name", _TEXT))


class _QuotasResponse(Response):
    API_KEY = 49
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("entries", Array(("error_code", Int16), ("error_message", _TEXT), ("entity", _ENTITY))),
    )


class _QuotasRequest(OwnRequest, RequestStruct):
    NEEDS = "quotas need Kafka 2.6 or later"
    API_KEY = 49
    API_VERSION = 0
    RESPONSE_TYPE = _QuotasResponse
    SCHEMA = Schema(
        (
            "entries",
            Array(
                ("entity", _ENTITY), ("ops", Array(("key", _TEXT), ("value", Float64), ("remove", Boolean)))
            ),
        ),
        ("validate_only", Boolean),
    )


@asynccontextmanager
async def quota(bootstrap_servers: str, key: str, rate: float) -> AsyncIterator[None]:
    """Limit each client id to a rate per second, until the end of the block."""
    await _alter(bootstrap_servers, (key, rate, False))
    try:
        yield
    finally:
        await _alter(bootstrap_servers, (key, 0.0, True))


async def _alter(bootstrap_servers: str, operation: tuple[str, float, bool]) -> None:
    any_client_id = [("client-id", None)]
    async with admin_of(bootstrap_servers) as admin:
        answer = await admin._send_request(_QuotasRequest([(any_client_id, [operation])], False))
    assert [code for code, *_ in answer.entries] == [0], answer
