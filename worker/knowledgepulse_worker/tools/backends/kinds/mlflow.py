"""MLflow: traces with their spans, and assessments.

Source: https://mlflow.org/docs/latest/api_reference/rest-api.html; ``mlflow.protos`` of mlflow 3.17.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from knowledgepulse_worker.tools.backends.backend import (
    SCORE,
    Backend,
    BackendWords,
    RunContent,
    RunListing,
    RunScore,
    outcome_of,
)
from knowledgepulse_worker.tools.backends.backend_client import (
    BackendClient,
    BackendRefusal,
    basic_header,
    bearer_header,
)
from knowledgepulse_worker.tools.backends.otlp_spans import (
    Attribute,
    otlp_document,
    plain_value,
    span_of,
    times_of,
)
from knowledgepulse_worker.tools.backends.pages import Page, all_pages, listings_of, row_of

_API = "/api/3.0/mlflow"
_PAGE_TRACES = 100
_OWN = "mlflow."
"""The prefix of the attributes that MLflow adds to spans, or that its own instrumentation records."""

_CONVENTIONS = ("gen_ai.", "openinference.", "llm.", "ai.", "traceloop.", "gcp.vertex.")
"""The prefixes of the attributes of other instrumentations."""

_LISTS = {"ai.prompt.tools"}
"""The attributes of the Vercel AI SDK that are lists, and not JSON."""


class _Experiment(msgspec.Struct):
    experiment_id: str


class _Experiments(msgspec.Struct):
    experiment: _Experiment


class _Page(msgspec.Struct):
    traces: list[Any] = []
    next_page_token: str | None = None


class _Location(msgspec.Struct):
    mlflow_experiment: _Experiment | None = None


class _Info(msgspec.Struct):
    trace_id: str | None = None
    request_time: str | None = None
    state: str | None = None
    assessments: list[Any] = []
    trace_location: _Location | None = None

    def listing(self) -> RunListing:
        return RunListing.of(self.trace_id or "", self.request_time or "")


class _Trace(msgspec.Struct):
    trace_info: _Info
    spans: list[dict[str, Any]] = []


class _Answer(msgspec.Struct):
    trace: _Trace


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

    together = 20
    run_id = re.compile(r"[\w-]{1,256}", re.ASCII)  # it is part of paths

    def __init__(self, client: BackendClient, project: str) -> None:
        super().__init__(client, project)
        self._experiment: str | None = None

    @staticmethod
    def headers(key: str | None) -> dict[str, str]:
        """Return the header with a user and a password, or else with a token, which has no colon."""
        return basic_header(key) if ":" in (key or "") else bearer_header(key)

    async def runs(self, since_ms: int | None) -> AsyncIterator[list[RunListing]]:
        """Yield pages of traces; see :class:`Backend`."""
        self._experiment = await self._experiment_id()
        content: dict[str, Any] = {
            "locations": [
                {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self._experiment}}
            ],
            "order_by": ["timestamp_ms ASC"],
            "filter": f"trace.timestamp_ms >= {since_ms or 0}",
        }
        path = f"{_API}/traces/search"

        async def ask(cursor: str | None, limit: int) -> Page:
            asked = {**content, "max_results": limit, **({} if cursor is None else {"page_token": cursor})}
            page = await self._client.send("POST", path, _Page, content=asked)
            return Page(page.traces, page.next_page_token)

        async for rows in all_pages(f"{self.url}: POST {path}", ask, _PAGE_TRACES):
            yield listings_of(rows, _Info)

    async def _experiment_id(self) -> str:
        query = [("experiment_name", "Default" if self.project == "default" else self.project)]
        answer = await self._client.require("/api/2.0/mlflow/experiments/get-by-name", _Experiments, query)
        return answer.experiment.experiment_id

    async def read(self, listings: Sequence[RunListing]) -> list[RunContent]:
        """Return the content of traces; see :class:`Backend`."""
        query = [("trace_ids", listing.id) for listing in listings]
        rows = (await self._client.get(f"{_API}/traces/batchGet", _Page, query)).traces
        by_id = {trace.trace_info.trace_id: trace for trace in (row_of(row, _Trace) for row in rows)}
        contents = []
        for listing in listings:
            trace = by_id.get(listing.id, _Trace(_Info()))
            spans = [span_of(row) for row in trace.spans]
            times = times_of(spans, listing.started_ms)
            document = otlp_document(
                [_as_recorded(row, span.attributes) for row, span in zip(trace.spans, spans, strict=True)]
            )
            has_ended = times.has_ended and trace.trace_info.state != "IN_PROGRESS"
            outcome = outcome_of(_judgements(trace.trace_info.assessments))
            contents.append(RunContent(listing, document, "otlp", has_ended, times.last_ms, outcome))
        return contents

    async def write(self, scores: Sequence[RunScore]) -> None:
        """Write the assessment for a score, in the place of an earlier one; see :class:`Backend`."""
        (score,) = scores
        path = f"{_API}/traces/{quote(score.run, safe='')}"
        info = (await self._client.get(path, _Answer)).trace.trace_info
        await self._require_own(info)
        said = {
            "feedback": {"value": score.value},
            "rationale": f"{score.label}: {score.explanation}",
            "metadata": {"kp.trace": score.trace_id, "kp.label": score.label, **score.details},
        }
        source = {"source_type": "CODE", "source_id": "knowledgepulse-worker"}
        content: dict[str, Any] = {"assessment": {"assessment_name": SCORE, "source": source, **said}}
        for known in info.assessments:
            match known:
                case {
                    "assessment_name": name,
                    "assessment_id": str(assessment),
                    "metadata": {"kp.trace": trace},
                } if (name, trace) == (SCORE, score.trace_id):
                    if any(known.get(member) != value for member, value in said.items()):
                        content["update_mask"] = ",".join(said)
                        place = f"{path}/assessments/{quote(assessment, safe='')}"
                        await self._client.send("PATCH", place, dict[str, Any], content=content)
                    return
        await self._client.send("POST", f"{path}/assessments", dict[str, Any], content=content)

    async def _require_own(self, info: _Info) -> None:
        """Refuse a run of another experiment, which a producer may name."""
        location = info.trace_location
        if location is None or location.mlflow_experiment is None:
            return
        if self._experiment is None:
            self._experiment = await self._experiment_id()
        if location.mlflow_experiment.experiment_id != self._experiment:
            raise BackendRefusal(HTTPStatus.NOT_FOUND, "")

    def link(self, run: str) -> str | None:
        """Return the address of a run's page; see :class:`Backend`."""
        if self._experiment is None:
            return None
        page = f"#/experiments/{self._experiment}/traces"
        return f"{self.url}/{page}?selectedEvaluationId={quote(run, safe='')}"

    def run_of(self, trace_id: str) -> str | None:
        """Return the trace's id, which contains that of OpenTelemetry; see :class:`Backend`."""
        return f"tr-{trace_id}"


def _judgements(assessments: list[Any]) -> dict[str, Any]:
    """Return the values of feedback by name."""
    found = {}
    for assessment in assessments:
        match assessment:
            case {"assessment_name": str(name), "feedback": {"value": value}}:
                found[name] = value
    return found


def _as_recorded(row: dict[str, Any], attributes: list[Attribute]) -> dict[str, Any]:
    """Return a span with the attributes that were recorded.

    MLflow parses those that are JSON, which the Vercel AI SDK records as texts, and repeats those of other
    instrumentations as its own.
    """
    if not any(attribute.key.startswith(_CONVENTIONS) for attribute in attributes):
        return row
    kept = []
    for attribute in attributes:
        key, value = attribute.key, attribute.value
        if key.startswith("ai.") and key not in _LISTS and value.keys() & {"array_value", "kvlist_value"}:
            value = {"string_value": json.dumps(plain_value(value), ensure_ascii=False)}
        if not key.startswith(_OWN):
            kept.append({"key": key, "value": value})
    return {**row, "attributes": kept}


BACKEND = MLflow
