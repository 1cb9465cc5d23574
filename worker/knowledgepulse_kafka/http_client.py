"""The HTTP client for registries, models and token endpoints.

It follows no redirects, which could send traces and keys elsewhere. It limits the size of an answer, even if
the answer is compressed, and removes secrets from texts that are meant for messages.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from knowledgepulse_kafka.safe_text import HIDDEN, printable

LONGEST_WAIT = 3600.0
"""Maximum wait in seconds, whatever the server requests."""

_SHOWN = 200
"""Maximum number of an answer's characters in a message."""

_CREDENTIALS = re.compile(r"\b(Basic|Bearer)[ ]+[A-Za-z0-9+/=._~-]+", re.IGNORECASE)


@dataclass(frozen=True)
class HttpAnswer:
    """A server's answer.

    Attributes:
        status: the status code.
        headers: the response headers.
        content_type: the media type that the server declares.
        body: the decompressed body, up to the request's limit.
        is_cut: whether the body is larger than the limit.
    """

    status: int
    headers: Mapping[str, str]
    content_type: str
    body: bytes
    is_cut: bool = False

    def json(self) -> Any:
        """Return the body's JSON.

        Raises:
            ValueError: the body is not JSON, not text, nested too deeply or larger than the request's limit.
        """
        if self.is_cut:
            raise ValueError(f"it is larger than {len(self.body):,} bytes")
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    def excerpt(self, secrets: Collection[str]) -> str:
        """Return the beginning of the body for a message; the answer may repeat parts of the request.

        Args:
            secrets: texts that the message must not show.
        """
        return shortened_answer(self.body.decode(errors="replace"), secrets)


def shortened_answer(text: str, secrets: Collection[str]) -> str:
    """Return the beginning of a server's text for a message, on one line and with secrets removed.

    A server may repeat the request, and so a secret as the client has written it: in a header of
    authorization (RFC 7617, RFC 6750), in an address or in JSON.
    """
    forms = {form for secret in filter(None, secrets) for form in _written(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return printable(_CREDENTIALS.sub(rf"\1 {HIDDEN}", text)[:_SHOWN])


def _written(secret: str) -> tuple[str, ...]:
    """Return the forms in which a secret is sent."""
    encoded = b64encode(secret.encode(errors="surrogatepass")).decode()
    return secret, encoded, quote(secret, "", errors="replace"), json.dumps(secret)[1:-1]


def bearer(key: str) -> dict[str, str]:
    """Return the header that authorizes requests with a key.

    Raises:
        ValueError: the key has characters that HTTP headers do not allow.
    """
    if not key.isascii() or not key.isprintable():
        raise ValueError("has characters that HTTP headers do not allow")
    return {"Authorization": f"Bearer {key}"}


async def request(
    session: aiohttp.ClientSession, method: str, url: URL, *, max_bytes: int, **content: Any
) -> HttpAnswer:
    """Send a request, read the answer up to a limit and close the connection if more is left.

    Raises:
        aiohttp.ClientError: there is no answer, or it cannot be read.
        TimeoutError: the answer did not arrive in time.
    """
    async with session.request(method, url, allow_redirects=False, **content) as response:
        body = bytearray()
        while len(body) <= max_bytes and (part := await response.content.read(max_bytes + 1 - len(body))):
            body += part
        is_cut = len(body) > max_bytes
        body = body[:max_bytes]
        return HttpAnswer(response.status, response.headers, response.content_type, bytes(body), is_cut)


def reason(error: aiohttp.ClientError | TimeoutError) -> str:
    """Return why a request failed, without any content of the request or its answer."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) if isinstance(error, aiohttp.ClientConnectorError) else type(error).__name__


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, 1 to :data:`LONGEST_WAIT`, as the server requests; None if it does not.

    A date is compared with the server's own clock.
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
