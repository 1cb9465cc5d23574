"""The HTTP client for servers of others: registries, models and token endpoints.

It follows no redirect, which would send traces and keys elsewhere; it reads no more of an answer than it may,
also of a compressed one; and what it passes on for messages has no secret.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from yarl import URL

LONGEST_WAIT = 3600.0
"""Seconds that a server may make us wait, whatever it says."""

_SHOWN = 200
"""Characters of an answer that are shown."""

_HIDDEN = "***"


@dataclass(frozen=True)
class Answer:
    """A server's answer.

    Attributes:
        status: its status.
        headers: its headers.
        content_type: the type that it claims for the body.
        body: the body, decompressed, up to the limit of the request.
    """

    status: int
    headers: Mapping[str, str]
    content_type: str
    body: bytes

    def json(self) -> Any:
        """Return the body's JSON.

        Raises:
            ValueError: it is no JSON, or cannot be read: it may be no text, too deep or cut off.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    def excerpt(self, secrets: Collection[str]) -> str:
        """Return the beginning of the body for a message; an answer may repeat what was sent.

        Args:
            secrets: what the message must not show.
        """
        return shortened(self.body.decode(errors="replace"), secrets)


def shortened(text: str, secrets: Collection[str]) -> str:
    """Return the beginning of a server's text for a message, without secrets that were sent."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text[:_SHOWN]


def bearer(key: str) -> dict[str, str]:
    """Return the header that authorizes requests with a key; raise a ValueError if no header takes it."""
    if not key.isascii() or not key.isprintable():
        raise ValueError("has characters that no HTTP header takes")
    return {"Authorization": f"Bearer {key}"}


async def request(
    session: aiohttp.ClientSession, method: str, url: URL, *, max_bytes: int, **content: Any
) -> Answer:
    """Send a request, and read its answer up to a limit; the rest stays unread, and the connection is closed.

    Raises:
        aiohttp.ClientError: there is no answer, or none that can be read.
        TimeoutError: there is none in time.
    """
    async with session.request(method, url, allow_redirects=False, **content) as response:
        body = bytearray()
        while len(body) < max_bytes and (part := await response.content.read(max_bytes - len(body))):
            body += part
        return Answer(response.status, response.headers, response.content_type, bytes(body))


def reason(error: aiohttp.ClientError | TimeoutError) -> str:
    """Return why a request failed, without what it or its answer contains."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) if isinstance(error, aiohttp.ClientConnectorError) else type(error).__name__


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server wants us to wait, 1 to :data:`LONGEST_WAIT`; None if it does not say.

    A date counts from the server's own clock.
    """
    text = headers.get("Retry-After", "")
    try:
        if text.isascii() and text.isdigit():
            seconds = float(text)
        else:
            date = parsedate_to_datetime(headers.get("Date", ""))
            seconds = (parsedate_to_datetime(text) - date).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 1.0), LONGEST_WAIT)
