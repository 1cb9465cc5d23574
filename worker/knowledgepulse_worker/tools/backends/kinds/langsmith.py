"""LangSmith: runs by trace, and feedback.

Source: https://api.smith.langchain.com/redoc; the client and the types of ``langsmith`` 0.15. No server of
LangSmith runs in the tests: requests and answers are checked against these types.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Any

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
)
from knowledgepulse_worker.tools.backends.backend_client import BackendClient, BackendRefusal, key_header
from knowledgepulse_worker.tools.backends.pages import Page, all_pages, listings_of, row_of, whole

_PAGE_RUNS = 100
_LISTED = ["id", "trace_id", "start_time"]
_READ = [
    *_LISTED,
    *(
        "name",
        "run_type",
        "parent_run_id",
        "end_time",
        "error",
        "status",
        "inputs",
        "outputs",
        "feedback_stats",
    ),
]


class _Session(msgspec.Struct):
    id: str


class _Cursors(msgspec.Struct):
    next: str | None = None


class _Page(msgspec.Struct):
    runs: list[Any] | None = None
    cursors: _Cursors | None = None


class _Run(msgspec.Struct):
    id: str
    trace_id: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    parent_run_id: str | None = None

    def listing(self) -> RunListing:
        return RunListing.of(self.trace_id or self.id, self.start_time or "")


class LangSmith(Backend):
    """A project of LangSmith."""

    name = "langsmith"
    words = BackendWords(
        "LangSmith",
        "https://docs.langchain.com/langsmith",
        "feedback, with the explanation as its comment",
        url="https://api.smith.langchain.com",
    )
    variables = (("LANGSMITH_API_KEY",),)

    def __init__(self, client: BackendClient, project: str) -> None:
        super().__init__(client, project)
        self._session: str | None = None

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        """Return the header with the key."""
        return key_header("x-api-key", key)

    async def runs(self, since_ms: int | None) -> AsyncIterator[list[RunListing]]:
        """Yield pages of root runs; see :class:`Backend`."""
        content = {"is_root": True, "select": _LISTED, "order": "asc"}
        if since_ms is not None:
            content["start_time"] = iso_of(since_ms)
        async for page in self._pages(content):
            yield listings_of(page, _Run)

    async def read(self, listings: Sequence[RunListing]) -> list[RunContent]:
        """Return the content of a trace; see :class:`Backend`. Its feedback states the outcome."""
        (listing,) = listings
        document = await whole(self._client, self._pages({"trace": listing.id, "select": _READ}))
        runs = [row_of(row, _Run) for row in document]
        ends = [milliseconds_at(run.end_time) for run in runs if run.end_time]
        roots = [run for run in runs if not run.parent_run_id]
        has_ended = bool(roots) and all(run.end_time for run in roots)
        return [RunContent(listing, document, "langsmith", has_ended, max(ends, default=listing.started_ms))]

    def _pages(self, content: dict[str, Any]) -> AsyncIterator[list[Any]]:
        async def ask(cursor: str | None, limit: int) -> Page:
            query = {"session": [await self._session_id()], "limit": limit, **content}
            following = {} if cursor is None else {"cursor": cursor}
            page = await self._client.send("POST", "/runs/query", _Page, content=query | following)
            return Page(page.runs or [], page.cursors.next if page.cursors else None)

        return all_pages(f"{self.url}: POST /runs/query", ask, _PAGE_RUNS)

    async def _session_id(self) -> str:
        """Return the project's id, which LangSmith calls a session."""
        if self._session is None:
            query = [("limit", "1"), ("name", self.project)]
            sessions = await self._client.require("/sessions", list[_Session], query)
            if not sessions:
                raise InputError(f"{self.url}: has no project {printable(self.project)}")
            self._session = sessions[0].id
        return self._session

    async def write(self, scores: Sequence[RunScore]) -> None:
        """Write the feedback for a score, in the place of an earlier one; see :class:`Backend`."""
        (score,) = scores
        said = {"score": round(score.value, 4), "value": score.label, "comment": score.explanation}
        feedback = {
            "id": score.uuid,
            "run_id": score.run,
            "trace_id": score.run,
            "session_id": await self._session_id(),
            "key": SCORE,
            **said,
            "feedback_source": {"type": "api", "metadata": dict(score.details)},
        }
        try:
            await self._client.send("POST", "/feedback", dict[str, Any], content=feedback)
        except BackendRefusal as refused:
            if refused.status != HTTPStatus.CONFLICT:
                raise
            await self._client.send("PATCH", f"/feedback/{score.uuid}", dict[str, Any], content=said)


BACKEND = LangSmith
