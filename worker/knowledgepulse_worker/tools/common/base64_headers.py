"""Copies of a worker's records whose headers Kafka Connect wrote as base64, as its default converter does."""

from __future__ import annotations

import logging
import re
from base64 import b64decode
from binascii import Error
from collections.abc import Sequence

from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_schemas import last_header
from knowledgepulse_schemas.dead_letter import REASONS

logger = logging.getLogger(__name__)

_SOURCE = re.compile(rb"[a-zA-Z0-9._-]{1,249}/\d+/\d+")
_REASONS = {reason.encode() for reason in REASONS}
_REMEDY = (
    "are base64: set the header.converter of the Connect cluster that copies them to "
    "org.apache.kafka.connect.converters.ByteArrayConverter"
)
_logged = LogInterval()


def has_base64_headers(headers: Sequence[tuple[str, bytes | None]]) -> bool:
    """Return whether a record has a worker's ``kp-source`` or ``kp-reason`` as base64."""
    source, reason = (_decoded(last_header(headers, name)) for name in ("kp-source", "kp-reason"))
    return _SOURCE.fullmatch(source) is not None or reason in _REASONS


def warn_of_base64_headers(topic: str, records: int) -> None:
    """Log what to change, if there are such records."""
    if records:
        logger.warning("%s: the kp-* headers of %d skipped records %s", topic, records, _REMEDY)


def warn_if_base64_headers(topic: str, headers: Sequence[tuple[str, bytes | None]]) -> None:
    """Log what to change if a record that is skipped has such headers; once in a while for each topic.

    For commands that read on and on, or that read records one by one.
    """
    if has_base64_headers(headers) and _logged.let_pass(topic):
        logger.warning("%s: the kp-* headers of skipped records %s", topic, _REMEDY)


def _decoded(value: bytes | None) -> bytes:
    try:
        return b64decode(value or b"", validate=True)
    except Error:
        return b""
