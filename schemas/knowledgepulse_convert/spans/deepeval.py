"""DeepEval's test runs, whose test cases have the spans of a traced agent.

Accepts: the test runs that DeepEval saves (``DEEPEVAL_RESULTS_FOLDER``), of agents that it traces.
The metrics of a test case judge its run, by their own thresholds. One without a score judges nobody, although
DeepEval then calls the test case a success if the agent failed, and a failure if the metric did.

Source: https://deepeval.com/docs/evaluation-introduction; the types of ``deepeval``.
Compared with: runs of 4.3.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import starmap
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all, runs_within
from knowledgepulse_convert.common.pattern import any_of, at
from knowledgepulse_convert.common.reading import as_list, items_of, text_or_none, without
from knowledgepulse_convert.spans.dialects import runs_of_spans
from knowledgepulse_convert.spans.records import Placed, Records, placed

_SPANS = Records(
    id=at("uuid"),
    trace=at("trace"),
    parent=at("parentUuid"),
    kind=at("type"),
    kinds={"agent": "agent", "llm": "model", "tool": "tool", "retriever": "tool"},
    title=at("name"),
    start=at("startTime"),
    end=at("endTime"),
    input=at("input"),
    output=at("output"),
    error=at("failure"),
    scores=at("scores"),
)
_LISTS = ("baseSpans", "agentSpans", "llmSpans", "retrieverSpans", "toolSpans")
_NUMBERED = re.compile(r"test_case_\d+")
"""The names that DeepEval gives test cases."""
_is_case = any_of({"name": str, "input": ..., "runDuration": ..., "flaky": ...})


def _runs(cases: Any) -> Iterator[ir.Run | ConversionError]:
    for path, case in items_of(cases):
        if not isinstance(case, dict) or not isinstance(case.get("trace"), dict):
            yield ConversionError(
                f"testCases{path}: a test case without its agent's trace has no steps; trace the agent with "
                "DeepEval's `@observe`, and evaluate it with `evals_iterator`"
            )
            continue
        for run in runs_of_spans(starmap(_SPANS.span, _records(case, f"{path}.trace"))):
            if isinstance(run, ir.Run):
                name = text_or_none(case.get("name"))
                run.task_id = None if name is None or _NUMBERED.fullmatch(name) else name
            yield run


def _records(case: dict[str, Any], path: str) -> Placed:
    """Yield the spans of a test case, below its trace unless they have one root, which is judged then."""
    trace = case["trace"]
    spans = [_told(span, trace) for name in _LISTS for _, span in placed(as_list(trace.get(name)), path)]
    known = {span.get("uuid") for span in spans}
    roots = [span for span in spans if span.get("parentUuid") not in known]
    judged = {"scores": list(_scores(as_list(case.get("metricsData"))))}
    beside = {f"case.{name}": value for name, value in without(case, "trace", "name").items()}
    if len(roots) == 1:
        repeated = {f"trace.{name}": value for name, value in without(trace, *_LISTS, "uuid").items()}
        roots[0] |= judged | beside | repeated
    else:
        yield path, _told(without(trace, *_LISTS), trace) | {"parentUuid": None} | judged | beside
        for root in roots:
            root["parentUuid"] = trace.get("uuid")
    yield from ((path, span) for span in spans)


def _told(record: dict[str, Any], trace: dict[str, Any]) -> dict[str, Any]:
    failed = record.get("status") == "ERRORED"
    return without(record, "status", "error") | {
        "trace": trace.get("uuid"),
        "failure": failed and (record.get("error") or True),
    }


def _scores(metrics: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the numbers of metrics, and as ``success`` whether each is above its threshold."""
    scored = [metric for metric in metrics if isinstance(metric, dict) and metric.get("score") is not None]
    for metric in scored:
        yield {"name": metric.get("name"), "value": metric["score"]}
    verdicts = [metric["success"] for metric in scored if isinstance(metric.get("success"), bool)]
    if verdicts:
        yield {"name": "success", "value": all(verdicts)}


FORMAT = InputFormat(
    "deepeval",
    __doc__,
    "testCases metricsScores testPassed testFailed",
    lambda document: are_all(_is_case, document, "testCases"),
    lambda document: runs_within(document, "testCases", _runs),
)
