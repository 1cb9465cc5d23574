"""Langfuse: observations by trace, and scores.

Source: https://api.reference.langfuse.com/; the types of ``langfuse`` 5.0. No server of Langfuse runs in the
tests: requests and answers are checked against these types.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.backends.backend import (
    OUTCOMES,
    SCORE,
    Backend,
    BackendWords,
    RunContent,
    RunListing,
    RunScore,
    ScoreRefusal,
    milliseconds_of,
    outcome_of,
)
from knowledgepulse_worker.tools.backends.backend_client import BackendClient, BackendRefusal, basic_header
from knowledgepulse_worker.tools.backends.otlp_spans import traced_run
from knowledgepulse_worker.tools.backends.send_scores import send_together

_OBSERVATIONS = "/api/public/v2/observations"
_PAGE = "1000"
_FIELDS = "core,basic,io,trace_context"


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
        query = [("fields", "core"), ("isRootObservation", "true"), ("limit", _PAGE)]
        if since_ms is not None:
            query.append(("fromStartTime", _iso(since_ms)))
        async for page in self._pages(_OBSERVATIONS, query):
            first: dict[str, int] = {}
            for observation in page:
                run = observation.get("traceId") or observation["id"]
                first[run] = min(first.get(run, 2**53), milliseconds_of(observation["startTime"]))
            yield [RunListing(run, started_ms) for run, started_ms in first.items()]

    async def contents(self, listings: Sequence[RunListing]) -> AsyncIterator[RunContent]:
        """Yield the content of traces; see :class:`Backend`."""
        for listing in listings:
            query = [("fields", _FIELDS), ("traceId", listing.id), ("limit", _PAGE)]
            document = [
                observation async for page in self._pages(_OBSERVATIONS, query) for observation in page
            ]
            query = [("traceId", listing.id), ("fields", "subject"), ("limit", "100")]
            judgements = {
                score["name"]: score.get("value")
                async for page in self._pages("/api/public/v3/scores", query)
                for score in page
                if score["name"] in OUTCOMES and (score.get("subject") or {}).get("kind") == "trace"
            }
            ends = [
                milliseconds_of(observation["endTime"])
                for observation in document
                if observation.get("endTime")
            ]
            roots = [
                observation
                for observation in document
                if observation.get("isRootObservation") or not observation.get("parentObservationId")
            ]
            has_ended = bool(roots) and all(observation.get("endTime") for observation in roots)
            last_ms = max(ends, default=listing.started_ms)
            yield RunContent(listing, document, "langfuse", has_ended, last_ms, outcome_of(judgements))

    async def _pages(self, path: str, query: list[tuple[str, str]]) -> AsyncIterator[list[dict[str, Any]]]:
        cursor: list[tuple[str, str]] = []
        while True:
            try:
                answer = await self._client.get(path, [*query, *cursor])
            except BackendRefusal as refused:
                raise InputError(f"{self._client.url}: {refused}") from None
            yield answer["data"]
            if not (answer.get("meta") or {}).get("cursor"):
                return
            cursor = [("cursor", answer["meta"]["cursor"])]

    async def send(self, scores: Sequence[RunScore]) -> list[ScoreRefusal]:
        """Write scores in one request, or one by one if it refuses some; see :class:`Backend`."""
        return await send_together(scores, self._send)

    async def _send(self, scores: Sequence[RunScore]) -> None:
        content = [_score(score) for score in scores]
        answer = await self._client.send("POST", "/api/public/scores", content=content) or {}
        if answer.get("rejected"):
            reason = "; ".join(str(error.get("message")) for error in answer.get("errors", ()))
            raise BackendRefusal(HTTPStatus.MULTI_STATUS, reason)

    def link(self, run: str) -> str | None:
        """Return the address of a run's page; see :class:`Backend`."""
        return f"{self._client.url}/trace/{quote(run, safe='')}"

    def run_of(self, trace: Mapping[str, Any]) -> str | None:
        """Return the OpenTelemetry trace id, which is that of Langfuse; see :class:`Backend`."""
        return traced_run(trace)


def _score(score: RunScore) -> dict[str, Any]:
    return {
        "id": score.uuid,  # a score with the same id and time is replaced
        "timestamp": _iso(score.time_ms),
        "traceId": score.run,
        "name": SCORE,
        "value": score.value,
        "dataType": "NUMERIC",
        "comment": f"{score.label}: {score.explanation}",
        "metadata": {"label": score.label, **score.details},
    }


def _iso(milliseconds: int) -> str:
    return (
        datetime.fromtimestamp(milliseconds / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


BACKEND = Langfuse
