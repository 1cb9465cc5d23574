"""A client of the registry's HTTP interface.

Source: ``registry/src`` of https://github.com/chesterkuo/OpenKnowledgePulse (Apache-2.0).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from knowledgepulse_curator.contributions.knowledge_unit import KnowledgeUnit
from knowledgepulse_curator.contributions.request_pace import Pace, SleepFunction
from knowledgepulse_kafka import http_client as client
from knowledgepulse_worker.errors import AccessError, InputError, SettingsError
from knowledgepulse_worker.redaction.sdk import clean_text
from knowledgepulse_worker.settings import RegistrySettings
from knowledgepulse_worker.tools.common.retries import NoAnswerError, no_answer

RetryReason = Literal["unreachable", "timeout", "closed", "server_error", "unreadable", "limited"]
"""The reason for repeating a request."""

FinalAnswer = Literal["accepted", "duplicate", "refused", "too_large"]
"""An answer after which the request is not repeated."""

MAX_ANSWER = 16_777_216
"""Largest answer in bytes; an answer repeats the whole trace."""

MAX_MESSAGE = 500
"""Largest number of characters that are kept of a registry's message."""

_READS, _WRITES = 60, 30
"""Requests per minute until the registry states its own limits; no registry allows fewer."""

_MINUTE = 60.0


class RegistryAnswer(NamedTuple):
    """A final answer, with the registry's message."""

    verdict: FinalAnswer
    status: int
    message: str = ""


class _Response(NamedTuple):
    status: int
    body: Any


class RegistryClient:
    """Sends requests to a registry, never faster than it allows.

    An asynchronous context manager.

    Raises:
        SettingsError: the address, the agent or the key is not set, or the file of the key is unusable.
    """

    def __init__(self, registry: RegistrySettings, sleep: SleepFunction) -> None:
        key = registry.secret("api_key")
        missing = [name for name in ("url", "agent_id") if getattr(registry, name) is None]
        missing += [] if key else ["api_key or registry.api_key_file"]
        if missing:
            raise SettingsError("\n".join(f"registry.{name}: is not set" for name in missing))
        try:
            authorization = client.bearer(key or "")
        except ValueError as error:
            raise SettingsError(f"registry.api_key: {error}") from None
        self._registry = registry
        self._url = (registry.url or "").rstrip("/")
        self._headers = authorization | {"Accept": "application/json"}
        self._reads, self._writes = Pace(_READS, sleep), Pace(_WRITES, sleep)

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._registry.timeout)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def check(self) -> None:
        """Check that the API key is valid and belongs to the agent, by asking for the agent's data.

        Raises:
            NoAnswerError: the registry gave no final answer.
            AccessError: it refuses the key, or the key belongs to another agent.
            SettingsError: there is no registry at the address.
        """
        path = f"/v1/export/{quote(self._registry.agent_id or '', safe='')}"
        response = await self._request("GET", path, self._reads, max_bytes=0)
        if response.status != HTTPStatus.OK:
            raise self._no_registry("GET", path, response)

    async def has(self, trace_id: str) -> bool:
        """Return whether the registry has a trace; raises as :meth:`check`."""
        path = f"/v1/knowledge/{quote(trace_id, safe='')}"
        response = await self._request("GET", path, self._reads)
        match response:
            case _Response(HTTPStatus.OK, {"data": {"id": found}}) if found == trace_id:
                return True
            case _Response(HTTPStatus.NOT_FOUND, {"error": _}):
                return False
        raise self._no_registry("GET", path, response)

    async def contribute(self, unit: KnowledgeUnit) -> RegistryAnswer:
        """Send a trace; raises as :meth:`check`."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": unit.idempotency_key}
        response = await self._request("POST", "/v1/knowledge", self._writes, data=unit.body, headers=headers)
        message = _message(response.body)
        match response:
            case _Response(HTTPStatus.OK | HTTPStatus.CREATED as status, {"data": {"id": unit.id}}):
                return RegistryAnswer("accepted", status)
            case _Response(HTTPStatus.CONFLICT as status, _):
                return RegistryAnswer("duplicate", status, message)
            case _Response(HTTPStatus.BAD_REQUEST | HTTPStatus.UNPROCESSABLE_ENTITY as status, _):
                return RegistryAnswer("refused", status, message)
            case _Response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE as status, _):
                return RegistryAnswer("too_large", status, message)
        raise self._no_registry("POST", "/v1/knowledge", response)

    async def delete(self, trace_id: str) -> bool:
        """Delete a trace; return whether the registry had it; raises as :meth:`check`."""
        path = f"/v1/knowledge/{quote(trace_id, safe='')}"
        response = await self._request("DELETE", path, self._reads)
        match response:
            case _Response(HTTPStatus.OK, {"deleted": True}):
                return True
            case _Response(HTTPStatus.NOT_FOUND, {"error": _}):
                return False
        raise self._no_registry("DELETE", path, response)

    async def _request(
        self, method: str, path: str, pace: Pace, *, max_bytes: int = MAX_ANSWER, **content: Any
    ) -> _Response:
        await pace.wait()
        url = URL(self._url + path, encoded=True)
        try:
            answer = await client.request(self._session, method, url, max_bytes=max_bytes, **content)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise no_answer(error) from error
        pace.told(answer.headers)
        self._require_access(method, path, answer)
        return _Response(answer.status, _json(answer) if max_bytes else None)

    def _require_access(self, method: str, path: str, answer: client.HttpAnswer) -> None:
        """Raise an error if the answer concerns the access and not the request."""
        status, seconds = answer.status, client.retry_after(answer.headers)
        is_limited = status == HTTPStatus.TOO_MANY_REQUESTS
        has_no_key = is_limited and answer.headers.get("X-RateLimit-Limit") == "0"
        if is_limited and not has_no_key:
            raise _no_answer("limited", "the registry's rate limit", seconds or _MINUTE)
        if has_no_key or status == HTTPStatus.UNAUTHORIZED:
            raise AccessError(f"registry.api_key: {self._url} does not know the key, or has revoked it")
        if status == HTTPStatus.FORBIDDEN:
            raise AccessError(
                f"registry.api_key: {self._url} refuses {method} {path}: the key belongs to another agent "
                "than registry.agent_id, lacks the scope `write`, or its agent has too little reputation"
            )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT:
            raise _no_answer("server_error", f"status {status}", seconds)

    def _no_registry(self, method: str, path: str, response: _Response) -> Exception:
        """Return the error for an answer that no registry gives."""
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            return _no_answer("unreadable", f"{method} {path}: the answer has an unknown form")
        return SettingsError(
            f"registry.url: {self._url} answers {method} {path} with status {response.status}, so it is not "
            "a KnowledgePulse registry"
        )


def _no_answer(reason: RetryReason, problem: str, seconds: float | None = None) -> NoAnswerError:
    return NoAnswerError(problem, seconds, reason)


def _json(answer: client.HttpAnswer) -> Any:
    """Return the body; None if it is not JSON and the status suffices."""
    try:
        return answer.json()
    except ValueError:
        if answer.status < HTTPStatus.MULTIPLE_CHOICES or answer.status == HTTPStatus.NOT_FOUND:
            raise _no_answer(
                "unreadable", f"status {answer.status} with {answer.content_type} instead of JSON"
            ) from None
        return None


def _message(body: Any) -> str:
    """Return the registry's error message after cleaning, since it may quote the trace or the key."""
    if not isinstance(body, dict):
        return ""
    issues = body.get("issues")
    issues = issues if isinstance(issues, list) else []
    said = [f"{issue.get('path')}: {issue.get('message')}" for issue in issues if isinstance(issue, dict)]
    text = "; ".join([str(body.get("error", "")), *said])
    return clean_text(text[: 4 * MAX_MESSAGE])[:MAX_MESSAGE]


async def require_access(registry: RegistrySettings) -> None:
    """Check that a registry answers, and that the key belongs to the agent.

    Raises:
        SettingsError: the settings are incomplete, or there is no registry at the address.
        AccessError: it refuses the key, or the key belongs to another agent.
        InputError: it does not answer.
    """

    async def at_once(seconds: float) -> None:
        """Do not wait: it is one request, and starting the command takes longer than the pace asks for."""

    async with RegistryClient(registry, at_once) as client:
        try:
            await client.check()
        except NoAnswerError as error:
            raise InputError(f"registry.url: {registry.url}: {error.reason}: {error}") from error
