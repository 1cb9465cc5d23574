"""LangSmith: runs by trace, and feedback.

Source: https://api.smith.langchain.com/redoc; the client and the types of ``langsmith`` 0.15. No server of
LangSmith runs in the tests: requests and answers are checked against these types.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.backends.backend import (
    SCORE,
    Backend,
    BackendWords,
    RunContent,
    RunListing,
    RunScore,
    ScoreRefusal,
    milliseconds_of,
)
from knowledgepulse_worker.tools.backends.backend_client import BackendClient, BackendRefusal, key_header
from knowledgepulse_worker.tools.backends.send_scores import send_each

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
            content["start_time"] = datetime.fromtimestamp(since_ms / 1000, UTC).isoformat()
        async for page in self._pages(content):
            yield [
                RunListing(run.get("trace_id") or run["id"], milliseconds_of(run["start_time"]))
                for run in page
            ]

    async def contents(self, listings: Sequence[RunListing]) -> AsyncIterator[RunContent]:
        """Yield the content of traces; see :class:`Backend`. Their feedback states the outcome."""
        for listing in listings:
            content = {"trace": listing.id, "select": _READ}
            document = [run async for page in self._pages(content) for run in page]
            ends = [milliseconds_of(run["end_time"]) for run in document if run.get("end_time")]
            roots = [run for run in document if not run.get("parent_run_id")]
            has_ended = bool(roots) and all(run.get("end_time") for run in roots)
            yield RunContent(listing, document, "langsmith", has_ended, max(ends, default=listing.started_ms))

    async def _pages(self, content: dict[str, Any]) -> AsyncIterator[list[dict[str, Any]]]:
        query = {"session": [await self._session_id()], "limit": _PAGE_RUNS, **content}
        while True:
            try:
                answer = await self._client.send("POST", "/runs/query", content=query)
            except BackendRefusal as refused:
                raise InputError(f"{self._client.url}: {refused}") from None
            yield answer.get("runs") or []
            following = (answer.get("cursors") or {}).get("next")
            if not following:
                return
            query = {**query, "cursor": following}

    async def _session_id(self) -> str:
        """Return the project's id, which LangSmith calls a session."""
        if self._session is None:
            try:
                sessions = await self._client.get("/sessions", [("limit", "1"), ("name", self._project)])
            except BackendRefusal as refused:
                raise InputError(f"{self._client.url}: {refused}") from None
            if not sessions:
                raise InputError(f"{self._client.url}: has no project {self._project}")
            self._session = str(sessions[0]["id"])
        return self._session

    async def send(self, scores: Sequence[RunScore]) -> list[ScoreRefusal]:
        """Write a feedback for each score, in the place of an earlier one; see :class:`Backend`."""
        return await send_each(scores, self._send)

    async def _send(self, score: RunScore) -> None:
        said = {"score": round(score.value, 4), "value": score.label, "comment": score.explanation}
        try:
            await self._client.send(
                "POST",
                "/feedback",
                content={
                    "id": score.uuid,
                    "run_id": score.run,
                    "trace_id": score.run,
                    "session_id": await self._session_id(),
                    "key": SCORE,
                    **said,
                    "feedback_source": {"type": "api", "metadata": dict(score.details)},
                },
            )
        except BackendRefusal as refused:
            if refused.status != HTTPStatus.CONFLICT:
                raise
            await self._client.send("PATCH", f"/feedback/{score.uuid}", content=said)


BACKEND = LangSmith
