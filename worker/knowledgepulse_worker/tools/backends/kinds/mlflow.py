"""MLflow: traces with their spans, and assessments.

Source: https://mlflow.org/docs/latest/api_reference/rest-api.html; ``mlflow.protos`` of mlflow 3.17.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
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
from knowledgepulse_worker.tools.backends.backend_client import (
    BackendClient,
    BackendRefusal,
    basic_header,
    bearer_header,
)
from knowledgepulse_worker.tools.backends.otlp_spans import otlp_document, plain_value, times_of, traced_run
from knowledgepulse_worker.tools.backends.send_scores import send_each

_API = "/api/3.0/mlflow"
_PAGE_TRACES = 100
_OWN = "mlflow."
"""The prefix of the attributes that MLflow adds to spans, or that its own instrumentation records."""

_CONVENTIONS = ("gen_ai.", "openinference.", "llm.", "ai.", "traceloop.", "gcp.vertex.")
"""The prefixes of the attributes of other instrumentations."""

_LISTS = {"ai.prompt.tools"}
"""The attributes of the Vercel AI SDK that are lists, and not JSON."""


class MLflow(Backend):
    """An experiment of MLflow."""

    name = "mlflow"
    words = BackendWords(
        "MLflow",
        "https://mlflow.org/docs/latest/genai/tracing/",
        "assessment, with the explanation as its rationale",
        project="experiment",
        project_note="`default` is MLflow's `Default`",
        key="a token or user:password",
    )
    variables = (("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"), ("MLFLOW_TRACKING_TOKEN",))

    def __init__(self, client: BackendClient, project: str) -> None:
        super().__init__(client, project)
        self._experiment: str | None = None

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        """Return the header with a user and a password, or else with a token, which has no colon."""
        return basic_header(key) if ":" in (key or "") else bearer_header(key)

    async def runs(self, since_ms: int | None) -> AsyncIterator[list[RunListing]]:
        """Yield pages of traces; see :class:`Backend`."""
        query = [("experiment_name", "Default" if self._project == "default" else self._project)]
        answer = await self._get("/api/2.0/mlflow/experiments/get-by-name", query)
        self._experiment = answer["experiment"]["experiment_id"]
        experiment = {"experiment_id": self._experiment}
        content: dict[str, Any] = {
            "locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": experiment}],
            "max_results": _PAGE_TRACES,
            "order_by": ["timestamp_ms ASC"],
            "filter": f"trace.timestamp_ms >= {since_ms or 0}",
        }
        while True:
            page = await self._client.send("POST", f"{_API}/traces/search", content=content)
            yield [
                RunListing(trace["trace_id"], milliseconds_of(trace["request_time"]))
                for trace in page.get("traces", ())
            ]
            if not page.get("next_page_token"):
                return
            content["page_token"] = page["next_page_token"]

    async def contents(self, listings: Sequence[RunListing]) -> AsyncIterator[RunContent]:
        """Yield the content of traces; see :class:`Backend`."""
        query = [("trace_ids", listing.id) for listing in listings]
        by_id = {
            trace["trace_info"]["trace_id"]: trace
            for trace in (await self._get(f"{_API}/traces/batchGet", query)).get("traces", ())
        }
        for listing in listings:
            trace = by_id.get(listing.id, {"trace_info": {}, "spans": []})
            info, spans = trace["trace_info"], trace.get("spans", [])
            times = times_of(spans, listing.started_ms)
            judgements = {
                assessment.get("assessment_name"): (assessment.get("feedback") or {}).get("value")
                for assessment in info.get("assessments", ())
                if assessment.get("assessment_name") in OUTCOMES
            }
            has_ended = times.has_ended and info.get("state") != "IN_PROGRESS"
            document = otlp_document([_as_recorded(span) for span in spans])
            outcome = outcome_of(judgements)
            yield RunContent(listing, document, "otlp", has_ended, times.last_ms, outcome)

    async def _get(self, path: str, query: list[tuple[str, str]]) -> Any:
        try:
            return await self._client.get(path, query)
        except BackendRefusal as refused:
            raise InputError(f"{self._client.url}: {refused}") from None

    async def send(self, scores: Sequence[RunScore]) -> list[ScoreRefusal]:
        """Write an assessment for each score, in the place of an earlier one; see :class:`Backend`."""
        return await send_each(scores, self._send)

    async def _send(self, score: RunScore) -> None:
        path = f"{_API}/traces/{quote(score.run, safe='')}"
        info = (await self._client.get(path))["trace"]["trace_info"]
        assessment = _assessment(score)
        for known in info.get("assessments", ()):
            if (
                known["assessment_name"] == SCORE
                and (known.get("metadata") or {}).get("kp.trace") == score.trace_id
            ):
                if any(known.get(name) != assessment[name] for name in ("feedback", "rationale", "metadata")):
                    changed = {"assessment": assessment, "update_mask": "feedback,rationale,metadata"}
                    await self._client.send(
                        "PATCH",
                        f"{path}/assessments/{quote(known['assessment_id'], safe='')}",
                        content=changed,
                    )
                return
        await self._client.send("POST", f"{path}/assessments", content={"assessment": assessment})

    def link(self, run: str) -> str | None:
        """Return the address of a run's page; see :class:`Backend`."""
        if self._experiment is None:
            return None
        page = f"#/experiments/{self._experiment}/traces"
        return f"{self._client.url}/{page}?selectedEvaluationId={quote(run, safe='')}"

    def run_of(self, trace: Mapping[str, Any]) -> str | None:
        """Return the trace's id, which contains that of OpenTelemetry; see :class:`Backend`."""
        run = traced_run(trace)
        return None if run is None else f"tr-{run}"


def _assessment(score: RunScore) -> dict[str, Any]:
    return {
        "assessment_name": SCORE,
        "source": {"source_type": "CODE", "source_id": "knowledgepulse-worker"},
        "feedback": {"value": score.value},
        "rationale": f"{score.label}: {score.explanation}",
        "metadata": {"kp.trace": score.trace_id, "kp.label": score.label, **score.details},
    }


def _as_recorded(span: Mapping[str, Any]) -> dict[str, Any]:
    """Return a span with the attributes that were recorded.

    MLflow parses those that are JSON, and repeats those of other instrumentations as its own.
    """
    attributes = span.get("attributes", ())
    if not any(attribute["key"].startswith(_CONVENTIONS) for attribute in attributes):
        return dict(span)
    kept = [_as_text(attribute) for attribute in attributes if not attribute["key"].startswith(_OWN)]
    return {**span, "attributes": kept}


def _as_text(attribute: dict[str, Any]) -> dict[str, Any]:
    """Return an attribute of the Vercel AI SDK as JSON, as it was recorded, and others as they are."""
    key, value = attribute["key"], attribute.get("value", {})
    if not key.startswith("ai.") or key in _LISTS or not value.keys() & {"array_value", "kvlist_value"}:
        return attribute
    return {"key": key, "value": {"string_value": json.dumps(plain_value(value), ensure_ascii=False)}}


BACKEND = MLflow
