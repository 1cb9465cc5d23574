"""Langfuse: observations by trace, and scores.

Source: https://api.reference.langfuse.com/; the types of ``langfuse`` 5.0. No server of Langfuse runs in the
tests: requests and answers are checked against these types.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.tools.backends.backend import (
    SCORE,
    Backend,
    BackendWords,
    RunContent,
    RunListing,
    RunScore,
    iso_of,
    milliseconds_at,
    outcome_of,
)
from knowledgepulse_worker.tools.backends.backend_client import BackendClient, BackendRefusal, basic_header
from knowledgepulse_worker.tools.backends.pages import Page, all_pages, listings_of, row_of, whole

_OBSERVATIONS = "/api/public/v2/observations"
_PAGE = 1000
_PAGE_SCORES = 100
_FIELDS = "core,basic,io,trace_context"


class _Meta(msgspec.Struct):
    cursor: str | None = None


class _Page(msgspec.Struct):
    data: list[Any]
    meta: _Meta | None = None


class _Observation(msgspec.Struct, rename="camel"):
    id: str
    trace_id: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    parent_observation_id: str | None = None
    is_root_observation: bool | None = None

    def listing(self) -> RunListing:
        return RunListing.of(self.trace_id or self.id, self.start_time or "")


class _Problem(msgspec.Struct):
    message: Any = None


class _Result(msgspec.Struct):
    rejected: int | None = None
    errors: list[_Problem] = []


class Langfuse(Backend):
    """The project of Langfuse to which the keys belong."""

    name = "langfuse"
    words = BackendWords(
        "Langfuse",
        "https://langfuse.com/docs",
        "score, with the explanation as its comment",
        project_note="that of the keys",
        key="public:secret",
    )
    variables = (("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"),)
    writes_together = True

    def __init__(self, client: BackendClient, project: str) -> None:
        if project != "default":
            raise InputError("--project: the keys of Langfuse determine the project; leave it out")
        super().__init__(client, project)

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        """Return the header with the public key and the secret one."""
        return basic_header(key)

    async def runs(self, since_ms: int | None) -> AsyncIterator[list[RunListing]]:
        """Yield pages of traces by their root observations; see :class:`Backend`."""
        query = [("fields", "core"), ("isRootObservation", "true")]
        if since_ms is not None:
            query.append(("fromStartTime", _utc(since_ms)))
        async for page in self._pages(_OBSERVATIONS, query, _PAGE):
            first: dict[str, RunListing] = {}
            for listing in listings_of(page, _Observation):
                known = first.get(listing.id, listing)
                first[listing.id] = min(known, listing, key=lambda run: run.started_ms)
            yield list(first.values())

    async def read(self, listings: Sequence[RunListing]) -> list[RunContent]:
        """Return the content of a trace; see :class:`Backend`."""
        (listing,) = listings
        query = [("fields", _FIELDS), ("traceId", listing.id)]
        document = await whole(self._client, self._pages(_OBSERVATIONS, query, _PAGE))
        observations = [row_of(row, _Observation) for row in document]
        ends = [milliseconds_at(found.end_time) for found in observations if found.end_time]
        roots = [
            found for found in observations if found.is_root_observation or not found.parent_observation_id
        ]
        has_ended = bool(roots) and all(root.end_time for root in roots)
        last_ms = max(ends, default=listing.started_ms)
        outcome = outcome_of(await self._judgements(listing.id))
        return [RunContent(listing, document, "langfuse", has_ended, last_ms, outcome)]

    async def _judgements(self, run: str) -> dict[str, Any]:
        """Return the values of the trace's scores, by name."""
        query = [("traceId", run), ("fields", "subject")]
        found = {}
        for row in await whole(self._client, self._pages("/api/public/v3/scores", query, _PAGE_SCORES)):
            match row:
                case {"name": str(name), "value": value, "subject": {"kind": "trace"}}:
                    found[name] = value
        return found

    def _pages(self, path: str, query: list[tuple[str, str]], limit: int) -> AsyncIterator[list[Any]]:
        async def ask(cursor: str | None, limit: int) -> Page:
            following = [] if cursor is None else [("cursor", cursor)]
            page = await self._client.get(path, _Page, [*query, ("limit", str(limit)), *following])
            return Page(page.data, page.meta.cursor if page.meta else None)

        return all_pages(f"{self.url}: GET {path}", ask, limit)

    async def write(self, scores: Sequence[RunScore]) -> None:
        """Write scores in one request; see :class:`Backend`."""
        content = [
            {
                "id": score.uuid,  # a score with the same id and time is replaced
                "timestamp": _utc(score.time_ms),
                "traceId": score.run,
                "name": SCORE,
                "value": score.value,
                "dataType": "NUMERIC",
                "comment": f"{score.label}: {score.explanation}",
                "metadata": {"label": score.label, **score.details},
            }
            for score in scores
        ]
        answer = await self._client.send("POST", "/api/public/scores", _Result, content=content)
        if answer.rejected:
            reason = "; ".join(printable(str(problem.message)) for problem in answer.errors)
            raise BackendRefusal(HTTPStatus.MULTI_STATUS, reason)

    def link(self, run: str) -> str | None:
        """Return the address of a run's page; see :class:`Backend`."""
        return f"{self.url}/trace/{quote(run, safe='')}"

    def run_of(self, trace_id: str) -> str | None:
        """Return the OpenTelemetry trace id, which is that of Langfuse; see :class:`Backend`."""
        return trace_id


def _utc(milliseconds: int) -> str:
    """Return a time as Langfuse's own clients write it."""
    return iso_of(milliseconds).replace("+00:00", "Z")


BACKEND = Langfuse
