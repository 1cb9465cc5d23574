"""Keep clients from creating topics.

By default, a broker creates a missing topic when a client asks for its metadata, with one partition and the
broker's settings. aiokafka's requests allow this, and it has no option against it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from aiokafka.protocol.metadata import MetadataRequest

from knowledgepulse_kafka.private_parts import REQUESTED_TOPICS
from knowledgepulse_kafka.request_hook import RequestSender, changing

_Client = TypeVar("_Client")


def never_creating(client: _Client) -> _Client:
    """Return a client of any kind that creates no topic by asking for its metadata."""
    return changing(client, lambda send: partial(_send, send))


def _send(send: RequestSender, request: Any, expect_response: bool = True) -> Any:
    if isinstance(request, MetadataRequest):
        request = MetadataRequest(REQUESTED_TOPICS.of(request), allow_auto_topic_creation=False)
    return send(request, expect_response=expect_response)
