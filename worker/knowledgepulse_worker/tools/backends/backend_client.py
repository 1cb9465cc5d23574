"""The HTTP client of backends: repeats what failed for the moment, and waits as long as the server asks."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
from yarl import URL

from knowledgepulse_kafka import http_client as client
from knowledgepulse_kafka.errors import SecurityError
from knowledgepulse_kafka.http_client import HttpAnswer, shortened_answer
from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_kafka.safe_text import without_secrets
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.tools.common.retries import NoAnswerError, WaitFunction, no_answer, until_answered
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.lines import file_errors

TIMEOUT = 60.0
"""Seconds for an answer."""

MAX_ANSWER = 16_777_216
"""Largest answer in bytes, after decompression."""

_MAX_SHOWN = 200
"""Number of a path's characters in a message."""

_LONGEST_WAIT = 30.0
_BUSY = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}

_printed = LogInterval()

Query = Sequence[tuple[str, str]]


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


class UnknownFormError(InputError):
    """The backend answered with something that it never says."""


class TooLargeError(UnknownFormError):
    """The answer is larger than a client reads."""


Form = TypeVar("Form")


async def wait(seconds: float, problem: Exception) -> None:
    """Wait, and print why, at most once a minute."""
    if _printed.let_pass(str(problem)):
        errors.print(f"waiting for the backend: {printable(str(problem))}", markup=False)
    await asyncio.sleep(seconds)


def shown_address(url: str) -> str:
    """Return a backend's address for messages and files: without user and password, on one line."""
    return printable(without_secrets(url.rstrip("/")))


def _parsed(url: str) -> URL:
    """Return a backend's address without a slash at its end.

    Raises:
        InputError: it is not an address.
    """
    try:
        parsed = URL(url.rstrip("/"), encoded=True)
        known = parsed.scheme in ("http", "https") and parsed.host and parsed.port
    except ValueError:
        known = None
    if not known or parsed.query_string or parsed.fragment:
        shown = printable(without_secrets(url))
        raise InputError(f"{shown}: should be a URL such as http://localhost:6006")
    return parsed


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
        url: the backend's address, which may have a user and a password.
        title: the backend's name in messages.
        headers: authorize the requests.
        secrets: texts that no message may show.
        patience: seconds for which a request is repeated before the command gives up; None for no limit, also
            after answers that the backend never gives.
        max_bytes: the largest answer that is read.
        wait: waits before a request is repeated.

    Attributes:
        url: the address without user and password.
        received: the size of all answers in bytes, after decompression.

    Raises:
        InputError: the address is none.
    """

    def __init__(
        self,
        url: str,
        title: str,
        headers: Mapping[str, str],
        secrets: Collection[str | None],
        *,
        patience: float | None,
        max_bytes: int,
        wait: WaitFunction,
    ) -> None:
        self.url = shown_address(url)
        parsed = _parsed(url)
        if parsed.raw_user is not None and "Authorization" in headers:
            raise InputError(f"{self.url}: has a user, and there is a key: only one of them can be sent")
        self.received = 0
        self._address = url.rstrip("/")
        self._title = title
        self._headers = {"Accept": "application/json", **headers}
        known = [text for secret in secrets if secret for text in (secret, secret.partition(":")[2])]
        known += [*(value.rpartition(" ")[2] for value in headers.values()), parsed.password or ""]
        known += [f"{parsed.user}:{parsed.password}"] if parsed.user is not None else []
        self._secrets = known
        self._patience = patience
        self._max_bytes = max_bytes
        self._wait = wait

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers, timeout=aiohttp.ClientTimeout(total=TIMEOUT)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, form: type[Form], query: Query = ()) -> Form:
        """Return the answer to a GET request; raises as :meth:`send`."""
        return await self.send("GET", path, form, query)

    async def require(self, path: str, form: type[Form], query: Query) -> Form:
        """Return the answer to a GET request that nothing works without.

        Raises:
            InputError: the backend refuses it, or as :meth:`send`.
        """
        try:
            return await self.get(path, form, query)
        except BackendRefusal as refused:
            raise InputError(f"{self.url}: {refused}") from None

    async def send(
        self, method: str, path: str, form: type[Form], query: Query = (), content: Any = None
    ) -> Form:
        """Send a request with JSON, and return the JSON of the answer, of which None is an empty one.

        Args:
            method: the method.
            path: the path below the backend's address, encoded.
            form: the type of the answer.
            query: names and values.
            content: the request's JSON.

        Raises:
            BackendRefusal: the backend refuses the request.
            SecurityError: it refuses the key.
            UnknownFormError: its answer has another form, or is too large.
            InputError: it does not answer.
        """
        url = URL(f"{self._address}{path}", encoded=True).extend_query(list(query))
        body = {} if content is None else {"json": content}

        async def ask() -> Form:
            try:
                answer = await client.request(self._session, method, url, max_bytes=self._max_bytes, **body)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise no_answer(error) from None
            self.received += len(answer.body)
            if answer.status in _BUSY:
                raise NoAnswerError(f"status {answer.status}", client.retry_after(answer.headers))
            try:
                return self._read(answer, f"{method} {path}", form)
            except UnknownFormError as error:
                if self._patience is not None:
                    raise
                raise NoAnswerError(str(error)) from None

        try:
            return await until_answered(ask, self._wait, longest=_LONGEST_WAIT, patience=self._patience)
        except NoAnswerError as error:
            given_up = f"; gave up after {error.waited:.0f} s" if error.waited else ""
            raise InputError(f"{self.url}: {error}{given_up}") from None

    def _read(self, answer: HttpAnswer, request: str, form: type[Form]) -> Form:
        said = answer.excerpt(self._secrets)
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise SecurityError(f"{self.url}: refuses the key, status {answer.status}: {said}")
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise BackendRefusal(answer.status, said)
        asked = f"{self.url}: answers {printable(request[:_MAX_SHOWN])}"
        if answer.is_cut:
            raise TooLargeError(f"{asked} with more than {self._max_bytes / 2**20:,g} MiB")
        problem = f"status {answer.status}"
        if 200 <= answer.status < 300:
            try:
                return msgspec.convert(answer.json() if answer.body else None, form)
            except ValueError as error:
                problem = shortened_answer(str(error), self._secrets)
        raise UnknownFormError(f"{asked} in an unknown form; is it {self._title}? {problem}")
