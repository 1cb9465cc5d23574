"""The HTTP client of backends: repeats what failed for the moment, and waits as long as the server asks."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp
from yarl import URL

from knowledgepulse_kafka import http_client as client
from knowledgepulse_kafka.errors import SecurityError
from knowledgepulse_kafka.http_client import HttpAnswer
from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.lines import file_errors

TIMEOUT = 60.0
"""Seconds for an answer."""

MAX_ANSWER = 268_435_456
"""Largest answer in bytes; a page of runs repeats whole conversations."""

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_BUSY = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}

_printed = LogInterval()

Query = Sequence[tuple[str, str]]
WaitFunction = Callable[[float, str], Awaitable[None]]
"""Waits for a number of seconds before a request is repeated, and is told why."""


class BackendRefusal(Exception):  # noqa: N818 - the caller decides whether this is an error
    """The backend refused a request for good.

    Attributes:
        status: the status code.
        answer: the beginning of its answer, without secrets.
    """

    def __init__(self, status: int, answer: str) -> None:
        super().__init__(f"status {status}: {answer}")
        self.status = status
        self.answer = answer


async def wait(seconds: float, reason: str) -> None:
    """Wait, and print the reason, at most once a minute."""
    if _printed.let_pass(reason):
        errors.print(f"waiting for the backend: {printable(reason)}", markup=False)
    await asyncio.sleep(seconds)


def _address(url: str) -> str:
    """Return a backend's address without a slash at its end.

    Raises:
        InputError: it is not an address.
    """
    try:
        parsed = URL(url)
    except ValueError:
        parsed = URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InputError(f"{printable(url)}: should be a URL such as http://localhost:6006")
    return url.rstrip("/")


def backend_key(variables: Sequence[Sequence[str]], file: Path | None) -> str | None:
    """Return a backend's key: a file's content, or else that of variables of the environment.

    Args:
        variables: alternatives, of which the first that is set is taken; two variables are a user and a
            password, and are joined by a colon.
        file: the file, which is preferred.

    Raises:
        InputError: the file cannot be read.
    """
    if file is not None:
        with file_errors(file, "read"):
            return file.read_text(encoding="utf-8").strip()
    alternatives = ([os.environ.get(name, "") for name in names] for names in variables)
    return next((":".join(values) for values in alternatives if all(values)), None)


def key_header(name: str, key: str | None, scheme: str = "") -> dict[str, str]:
    """Return a header with a key, after the scheme of the authorization; empty without a key.

    Raises:
        InputError: the key has characters that HTTP headers do not allow.
    """
    if key is None:
        return {}
    if not key.isascii() or not key.isprintable():
        raise InputError("the key of the backend has characters that HTTP headers do not allow")
    return {name: f"{scheme}{key}"}


def bearer_header(key: str | None) -> dict[str, str]:
    """Return the header with a token; raises as :func:`key_header`."""
    return key_header("Authorization", key, "Bearer ")


def basic_header(pair: str | None) -> dict[str, str]:
    """Return the header with a user and a password, which are joined by a colon; empty without them."""
    return {} if pair is None else {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


class BackendClient:
    """Sends requests to a backend. An asynchronous context manager.

    Args:
        url: the backend's address.
        headers: authorize the requests.
        secrets: texts that no message may show.
        patience: seconds for which a request is repeated before the command gives up; None for no limit.
        wait: waits before a request is repeated.

    Raises:
        InputError: the address is none.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        secrets: Collection[str | None] = (),
        *,
        patience: float | None = 120.0,
        wait: WaitFunction = wait,
    ) -> None:
        self.url = _address(url)
        self._headers = {"Accept": "application/json", **headers}
        known = [text for secret in secrets if secret for text in (secret, secret.partition(":")[2])]
        self._secrets = [*known, *(value.rpartition(" ")[2] for value in headers.values())]
        self._patience = patience
        self._wait = wait

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers, timeout=aiohttp.ClientTimeout(total=TIMEOUT)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, query: Query = ()) -> Any:
        """Return the JSON of a GET request; raises as :meth:`send`."""
        return await self.send("GET", path, query)

    async def send(self, method: str, path: str, query: Query = (), content: Any = None) -> Any:
        """Send a request with JSON, and return the JSON of the answer; None if the answer is empty.

        Raises:
            BackendRefusal: the backend refuses the request.
            SecurityError: it refuses the key.
            InputError: it does not answer, or not in JSON.
        """
        url = URL(f"{self.url}{path}", encoded=True).extend_query(list(query))
        body = {} if content is None else {"json": content}
        waited, delay = 0.0, _FIRST_WAIT
        while True:
            answer, problem = await self._once(method, url, body)
            if answer is not None and answer.status not in _BUSY:
                return self._read(answer)
            seconds = None if answer is None else client.retry_after(answer.headers)
            seconds = delay if seconds is None else seconds
            if self._patience is not None and waited + seconds > self._patience:
                raise InputError(f"{self.url}: {problem}; gave up after {waited:.0f} s")
            await self._wait(seconds, problem)
            waited, delay = waited + seconds, min(delay * 2, _LONGEST_WAIT)

    async def _once(self, method: str, url: URL, body: Mapping[str, Any]) -> tuple[HttpAnswer | None, str]:
        """Send a request once; return its answer, and what is wrong if it is to be repeated."""
        try:
            answer = await client.request(self._session, method, url, max_bytes=MAX_ANSWER, **body)
        except (aiohttp.ClientError, TimeoutError) as error:
            return None, client.reason(error)
        return answer, f"status {answer.status}"

    def _read(self, answer: HttpAnswer) -> Any:
        said = answer.excerpt(self._secrets)
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise SecurityError(f"{self.url}: refuses the key, status {answer.status}: {said}")
        if not 200 <= answer.status < 300:
            raise BackendRefusal(answer.status, said)
        try:
            return answer.json() if answer.body else None
        except ValueError as error:
            raise InputError(f"{printable(self.url)}: answers in something else than JSON: {error}") from None
