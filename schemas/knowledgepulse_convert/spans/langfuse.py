"""Langfuse: exported observations, and traces with their observations and scores.

Version 2 of the API and blob exports have observations only; version 1 has traces. A download from the trace
view has the observations beside their trace, or beside its scores.

Accepts: observations; traces with their observations and scores, from the API or downloaded from the trace
    view.
Source: https://api.reference.langfuse.com/; the types of ``langfuse``.
Compared with: what an experiment of ``langfuse`` 5.0 sends; the types of ``langfuse`` 5.0, and public files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all, runs_within
from knowledgepulse_convert.common.reading import (
    CamelModel,
    InputModel,
    each,
    parse_json,
    read,
    unmapped,
    unwrap,
    without,
)
from knowledgepulse_convert.spans.dialects import Kind, attributes_of, runs_of_spans
from knowledgepulse_convert.spans.genai import evaluation_event
from knowledgepulse_convert.spans.span import Span
from knowledgepulse_convert.spans.tree import nanoseconds

_KINDS: dict[str, Kind] = {"AGENT": "agent", "GENERATION": "model", "TOOL": "tool", "RETRIEVER": "tool"}
_TOOL_PREFIX = re.compile("^(execute_tool |running tool: )")
"""The text before a tool's name in OpenTelemetry's conventions and in Pydantic AI."""
_OBSERVATION_NAMES = ({"traceId", "startTime"}, {"trace_id", "start_time"})


class _Score(CamelModel):
    name: str = ""
    value: Any = None
    observation_id: str | None = None


class _Observation(CamelModel):
    id: str
    trace_id: str | None = None
    trace_name: str | None = None
    parent_observation_id: str | None = None
    type: str
    name: str | None = None
    start_time: Any = None
    end_time: Any = None
    input: Any = None
    output: Any = None
    level: str | None = None
    status_message: str | None = None


_EXPERIMENT = "experiment-item-task"
"""The observation that the SDK's experiments score in place of the trace."""


class _Trace(InputModel):
    id: str
    name: str | None = None
    timestamp: Any = None
    input: Any = None
    output: Any = None
    observations: list[_Observation | str]
    scores: list[_Score | str] | None = None


def _is_observation(document: Any) -> bool:
    return isinstance(document, dict) and any(
        {"id", "type", *names} <= document.keys() for names in _OBSERVATION_NAMES
    )


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    document = _unwrapped(document)
    values = document if isinstance(document, list) else [document]
    for trace_spans in each([value for value in values if not _is_observation(value)], _spans_of_trace):
        if isinstance(trace_spans, ConversionError):
            yield trace_spans
        else:
            yield from runs_of_spans(trace_spans)
    observations = [read(_Observation, value) for value in values if _is_observation(value)]
    yield from runs_of_spans(
        (_span(observation, observation.trace_id or observation.id, None) for observation in observations),
    )


def _unwrapped(document: Any) -> Any:
    """Return the list in an API response, or the trace in a download, or else the document itself."""
    document = unwrap(document, "data")
    if not isinstance(document, dict) or "id" in document:
        return document
    match document:
        case {"trace": dict(trace), "observations": list()}:
            return trace | without(document, "trace")
        case {"observations": [{"traceId": str(trace_id), **first}, *_]}:
            return {"id": trace_id, "name": first.get("traceName")} | document
    return document


def _is_trace(document: Any) -> bool:
    return isinstance(document, dict) and "id" in document and isinstance(document.get("observations"), list)


def _spans_of_trace(value: Any, path: str) -> list[Span]:
    trace = read(_Trace, value, path)
    if any(isinstance(observation, str) for observation in trace.observations):
        raise ConversionError(
            f"trace {trace.id}: observations are ids only; export the trace with its observations"
        )
    observations = [
        observation for observation in trace.observations if isinstance(observation, _Observation)
    ]
    start = nanoseconds(trace.timestamp)
    losses = unmapped(trace.model_copy(update={"observations": []}))
    outcomes = []
    whole = {None, *(observation.id for observation in observations if observation.name == _EXPERIMENT)}
    for score in trace.scores or ():
        if isinstance(score, str):
            continue
        if score.observation_id not in whole:  # it judges a part of the run
            losses.add("scores[] of observations", [score.name, score.value])
        elif ir.is_outcome(score.name, score.value):
            outcomes.append(evaluation_event(score.name, score.value))
        else:
            losses.add("scores[] that state no outcome", [score.name, score.value])
    root = Span(
        trace_id=trace.id,
        id=trace.id,
        parent_id=None,
        name=trace.name or "",
        attributes=attributes_of("agent", trace.input, trace.output),
        start=start,
        end=max([start, *(nanoseconds(observation.end_time) for observation in observations)]),
        events=outcomes,
        losses=losses,
    )
    known = {observation.id for observation in observations}
    for observation in observations:
        if observation.parent_observation_id not in known:  # outside of the export
            observation.parent_observation_id = None
    return [root, *(_span(observation, trace.id, trace.id) for observation in observations)]


def _span(observation: _Observation, trace_id: str, root_id: str | None) -> Span:
    kind = _KINDS.get(observation.type.upper())
    name, given, returned = observation.name, observation.input, observation.output
    if kind == "tool":
        name = _TOOL_PREFIX.sub("", name or observation.type.lower())
        given, returned = parse_json(given), returned if parse_json(returned) else None
    return Span(
        trace_id=trace_id,
        id=observation.id,
        parent_id=observation.parent_observation_id or root_id,
        name=name or "",
        attributes=attributes_of(kind, given, returned),
        start=nanoseconds(observation.start_time),
        end=nanoseconds(observation.end_time),
        failed=observation.level == "ERROR",
        message=(observation.level == "ERROR" and observation.status_message) or "",
        resource={"service.name": observation.trace_name},
        losses=unmapped(observation, "observations[]"),
    )


FORMAT = InputFormat(
    "langfuse",
    __doc__,
    "id traceId type startTime",
    lambda document: are_all(lambda item: _is_trace(item) or _is_observation(item), _unwrapped(document)),
    lambda document: runs_within(document, "data", _runs),
    is_fragment=_is_observation,
)
