"""Phoenix: traces with their spans as OTLP JSON, and trace annotations.

Source: https://arize.com/docs/phoenix/sdk-api-reference/rest-api/overview; ``/openapi.json`` of arize-phoenix
20.26.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from knowledgepulse_schemas.convert.spans.span import unflatten
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
from knowledgepulse_worker.tools.backends.backend_client import BackendClient, BackendRefusal
from knowledgepulse_worker.tools.backends.otlp_spans import (
    SpanTimes,
    otlp_document,
    plain_value,
    span_trace_id,
    times_of,
    traced_run,
)
from knowledgepulse_worker.tools.backends.send_scores import send_together

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


class Phoenix(Backend):
    """A project of Phoenix."""

    name = "phoenix"
    words = BackendWords("Phoenix", "https://arize.com/docs/phoenix", "trace annotation")
    variables = (("PHOENIX_API_KEY",),)

    def __init__(self, client: BackendClient, project: str) -> None:
        super().__init__(client, project)
        self._path = f"/v1/projects/{quote(project, safe='')}"

    async def runs(self, since_ms: int | None) -> AsyncIterator[list[RunListing]]:
        """Yield pages of traces, oldest first; see :class:`Backend`."""
        query = [("sort", "start_time"), ("order", "asc"), ("limit", str(_PAGE_TRACES))]
        if since_ms is not None:
            query.append(("start_time", datetime.fromtimestamp(since_ms / 1000, UTC).isoformat()))
        async for page in self._pages(f"{self._path}/traces", query):
            yield [RunListing(trace["trace_id"], milliseconds_of(trace["start_time"])) for trace in page]

    async def contents(self, listings: Sequence[RunListing]) -> AsyncIterator[RunContent]:
        """Yield the content of traces; see :class:`Backend`."""
        ids = [("trace_id", listing.id) for listing in listings]
        spans: dict[str, list[dict[str, Any]]] = defaultdict(list)
        async for page in self._pages(f"{self._path}/spans/otlpv1", [("limit", str(_PAGE_SPANS)), *ids]):
            for span in page:
                spans[span_trace_id(span)].append(_as_recorded(_without_nulls(span)))
        judgements = await self._judgements(listings)
        for listing in listings:
            times: SpanTimes = times_of(spans[listing.id], listing.started_ms)
            document = otlp_document(spans[listing.id])
            outcome = outcome_of(judgements[listing.id])
            yield RunContent(listing, document, "otlp", times.has_ended, times.last_ms, outcome)

    async def _judgements(self, listings: Sequence[RunListing]) -> Mapping[str, dict[str, Any]]:
        """Return the scores of the annotations that state an outcome, by trace and name."""
        query = [
            ("limit", str(_PAGE_ANNOTATIONS)),
            *(("include_annotation_names", name) for name in OUTCOMES),
        ]
        query += [("trace_ids", listing.id) for listing in listings]
        scores: dict[str, dict[str, Any]] = defaultdict(dict)
        async for page in self._pages(f"{self._path}/trace_annotations", query):
            for annotation in page:
                scores[annotation["trace_id"]][annotation["name"]] = (annotation.get("result") or {}).get(
                    "score"
                )
        return scores

    async def _pages(self, path: str, query: list[tuple[str, str]]) -> AsyncIterator[list[dict[str, Any]]]:
        cursor: list[tuple[str, str]] = []
        while True:
            try:
                answer = await self._client.get(path, [*query, *cursor])
            except BackendRefusal as refused:
                raise InputError(f"{self._client.url}: {refused}") from None
            yield answer["data"]
            if answer.get("next_cursor") is None:
                return
            cursor = [("cursor", answer["next_cursor"])]

    async def send(self, scores: Sequence[RunScore]) -> list[ScoreRefusal]:
        """Write annotations in one request, or one by one if it is refused; see :class:`Backend`."""
        return await send_together(scores, self._send)

    async def _send(self, scores: Sequence[RunScore]) -> None:
        content = {"data": [_annotation(score) for score in scores]}
        await self._client.send("POST", "/v1/trace_annotations", [("sync", "true")], content)

    def link(self, run: str) -> str | None:
        """Return the address of a run's page; see :class:`Backend`."""
        return f"{self._client.url}/redirects/traces/{quote(run, safe='')}"

    def run_of(self, trace: Mapping[str, Any]) -> str | None:
        """Return the OpenTelemetry trace id; see :class:`Backend`."""
        return traced_run(trace)


def _annotation(score: RunScore) -> dict[str, Any]:
    return {
        "name": SCORE,
        "annotator_kind": "CODE",
        "result": {"score": score.value, "label": score.label, "explanation": score.explanation},
        "metadata": dict(score.details),
        "identifier": score.trace_id,  # an annotation with the same name and identifier is replaced
        "trace_id": score.run,
    }


def _as_recorded(span: dict[str, Any]) -> dict[str, Any]:
    """Return a span with the attributes that were recorded.

    Phoenix spreads structured ones over many names, and derives its own from those of OpenTelemetry.
    """
    attributes = {attribute["key"]: attribute["value"] for attribute in span.get("attributes", ())}
    for name in _STRUCTURED:
        spread = {
            key: plain_value(member) for key, member in attributes.items() if key.startswith(f"{name}.")
        }
        if spread:
            attributes = {key: member for key, member in attributes.items() if key not in spread}
            attributes[name] = {"string_value": json.dumps(unflatten(spread, name))}
    if attributes.keys() & _RECORDED:
        attributes = {key: member for key, member in attributes.items() if not key.startswith(_DERIVED)}
    return {**span, "attributes": [{"key": key, "value": member} for key, member in attributes.items()]}


def _without_nulls(value: Any) -> Any:
    """Return JSON without null members: Phoenix writes all members of an OTLP value, one of which is set."""
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value


BACKEND = Phoenix
