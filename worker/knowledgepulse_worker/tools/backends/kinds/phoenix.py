"""Phoenix: traces with their spans as OTLP JSON, and trace annotations.

Source: https://arize.com/docs/phoenix/sdk-api-reference/rest-api/overview; ``/openapi.json`` of arize-phoenix
20.26.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from knowledgepulse_convert.spans.span import unflatten
from knowledgepulse_worker.tools.backends.backend import (
    OUTCOMES,
    SCORE,
    Backend,
    BackendWords,
    RunContent,
    RunListing,
    RunScore,
    iso_of,
    outcome_of,
)
from knowledgepulse_worker.tools.backends.backend_client import BackendClient
from knowledgepulse_worker.tools.backends.otlp_spans import (
    Span,
    otlp_document,
    plain_value,
    span_of,
    times_of,
)
from knowledgepulse_worker.tools.backends.pages import Page, all_pages, listings_of, whole

_PAGE_TRACES = 100
_PAGE_SPANS = 1000
_PAGE_ANNOTATIONS = 1000

_RECORDED = {
    *("gen_ai.input.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.agent.name"),
    "ai.operationId",
}
_STRUCTURED = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions")
_DERIVED = (
    *("openinference.", "input.", "output.", "tool.", "tool_call."),
    *("llm.input_messages", "llm.output_messages", "llm.model_name", "llm.tools", "llm.token_count"),
    *("llm.invocation_parameters", "llm.provider", "llm.system"),
)


class _Page(msgspec.Struct):
    data: list[Any]
    next_cursor: str | None = None


class _Trace(msgspec.Struct):
    trace_id: str
    start_time: str

    def listing(self) -> RunListing:
        return RunListing.of(self.trace_id, self.start_time)


class Phoenix(Backend):
    """A project of Phoenix."""

    name = "phoenix"
    words = BackendWords("Phoenix", "https://arize.com/docs/phoenix", "trace annotation")
    variables = (("PHOENIX_API_KEY",),)
    together = 20
    writes_together = True

    def __init__(self, client: BackendClient, project: str) -> None:
        super().__init__(client, project)
        self._path = f"/v1/projects/{quote(project, safe='')}"

    async def runs(self, since_ms: int | None) -> AsyncIterator[list[RunListing]]:
        """Yield pages of traces, oldest first; see :class:`Backend`."""
        query = [("sort", "start_time"), ("order", "asc")]
        if since_ms is not None:
            query.append(("start_time", iso_of(since_ms)))
        async for page in self._pages("traces", query, _PAGE_TRACES):
            yield listings_of(page, _Trace)

    async def read(self, listings: Sequence[RunListing]) -> list[RunContent]:
        """Return the content of traces; see :class:`Backend`."""
        ids = [("trace_id", listing.id) for listing in listings]
        rows: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
        spans: dict[str | None, list[Span]] = defaultdict(list)
        for row in await whole(self._client, self._pages("spans/otlpv1", ids, _PAGE_SPANS)):
            written = _without_nulls(row)
            span = span_of(written)
            spans[span.trace_id].append(span)
            rows[span.trace_id].append(_as_recorded(written, span))
        judgements = await self._judgements(listings)
        return [
            RunContent(
                listing,
                otlp_document(rows[listing.id]),
                "otlp",
                *times_of(spans[listing.id], listing.started_ms),
                outcome_of(judgements[listing.id]),
            )
            for listing in listings
        ]

    async def _judgements(self, listings: Sequence[RunListing]) -> Mapping[str, dict[str, Any]]:
        """Return the scores of the annotations that state an outcome, by trace and name."""
        query = [("include_annotation_names", name) for name in OUTCOMES]
        query += [("trace_ids", listing.id) for listing in listings]
        scores: dict[str, dict[str, Any]] = defaultdict(dict)
        for row in await whole(self._client, self._pages("trace_annotations", query, _PAGE_ANNOTATIONS)):
            match row:
                case {"trace_id": str(run), "name": str(name), "result": {"score": score}}:
                    scores[run][name] = score
        return scores

    def _pages(self, kind: str, query: list[tuple[str, str]], limit: int) -> AsyncIterator[list[Any]]:
        path = f"{self._path}/{kind}"

        async def ask(cursor: str | None, limit: int) -> Page:
            following = [] if cursor is None else [("cursor", cursor)]
            page = await self._client.get(path, _Page, [*query, ("limit", str(limit)), *following])
            return Page(page.data, page.next_cursor)

        return all_pages(f"{self.url}: GET {path}", ask, limit)

    async def write(self, scores: Sequence[RunScore]) -> None:
        """Write annotations in one request; see :class:`Backend`."""
        annotations = [
            {
                "name": SCORE,
                "annotator_kind": "CODE",
                "result": {"score": score.value, "label": score.label, "explanation": score.explanation},
                "metadata": dict(score.details),
                "identifier": score.trace_id,  # an annotation with the same name and identifier is replaced
                "trace_id": score.run,
            }
            for score in scores
        ]
        content = {"data": annotations}
        await self._client.send("POST", "/v1/trace_annotations", _Page, [("sync", "true")], content)

    def link(self, run: str) -> str | None:
        """Return the address of a run's page; see :class:`Backend`."""
        return f"{self.url}/redirects/traces/{quote(run, safe='')}"

    def run_of(self, trace_id: str) -> str | None:
        """Return the OpenTelemetry trace id; see :class:`Backend`."""
        return trace_id


def _as_recorded(row: dict[str, Any], span: Span) -> dict[str, Any]:
    """Return a span with the attributes that were recorded.

    Phoenix spreads structured ones over many names, and derives its own from those of OpenTelemetry.
    """
    attributes = {attribute.key: attribute.value for attribute in span.attributes}
    for name in _STRUCTURED:
        spread = {
            key: plain_value(member) for key, member in attributes.items() if key.startswith(f"{name}.")
        }
        if spread:
            attributes = {key: member for key, member in attributes.items() if key not in spread}
            attributes[name] = {"string_value": json.dumps(unflatten(spread, name))}
    if attributes.keys() & _RECORDED:
        attributes = {key: member for key, member in attributes.items() if not key.startswith(_DERIVED)}
    return {**row, "attributes": [{"key": key, "value": member} for key, member in attributes.items()]}


def _without_nulls(value: Any) -> Any:
    """Return JSON without null members: Phoenix writes all members of an OTLP value, one of which is set."""
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value


BACKEND = Phoenix
