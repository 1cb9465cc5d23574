"""Tracers whose spans a table describes: the attribute of a span's kind, and those of its content.

Tracers whose exports hold other records are read as spans with attributes of our own, also in the table.

Sources: https://code.claude.com/docs/en/monitoring-usage; the types of ``lmnr``;
https://langfuse.com/integrations/native/opentelemetry; https://mlflow.org/docs/latest/genai/tracing/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, parse_json
from knowledgepulse_convert.messages.any_vendor import messages_of
from knowledgepulse_convert.spans import genai
from knowledgepulse_convert.spans.conversation import ModelCall, ToolRun
from knowledgepulse_convert.spans.span import Span, node_of
from knowledgepulse_convert.spans.tree import Node, runs_of

Kind = Literal["agent", "model", "tool"]


@dataclass(frozen=True)
class Dialect:
    """How a tracer records calls; a name may be that of an attribute, or of an event's after its own and "/".

    Attributes:
        kind: the attribute of a span's kind; without one, its kind is its name.
        kinds: the kinds that are calls, in lower case.
        inputs: names of a call's input, of which the first that a span has counts.
        outputs: names of its output.
        names: attributes of a tool's name; without one, the name of the span is the tool's.
        ids: attributes of a tool call's id.
        root: whether a span without a parent is an agent's, whatever its kind.
        failure: the attribute whose value says whether a call failed, and the value.
        within: the kind of spans within a tool's that tell its failure.
        server: the attribute of a tool's MCP server.
        is_json: whether texts may be JSON.
        unrecorded: what the spans never tell of a run.
        scope: the instrumentation whose spans these are, if others name their kinds so, too.
        operation: an attribute whose value is told behind the kind's, with a dot between them.
        reason: the attribute that says why an agent's answer ended.
    """

    kind: str
    kinds: dict[str, Kind]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    root: bool = False
    failure: tuple[str, Any] = ("", None)
    within: str | None = None
    server: str = ""
    is_json: bool = True
    unrecorded: tuple[str, ...] = ()
    scope: str = ""
    operation: str = ""
    reason: str = ""


_GOES_ON = {"tool-calls", "tool_calls", "tool_use"}
"""Why an agent's last answer ended, if it made calls: a limit was reached, and its text came before these."""
DIALECTS = (
    Dialect(  # VoltAgent, whose model calls do not tell what the model says; the messages in its memory do
        "span.type",
        {"": "agent", "llm": "model", "tool": "tool", "memory.write": "model"},
        inputs=("llm.messages", "input"),
        outputs=("output",),
        names=("tool.name",),
        ids=("tool.call.id",),
        scope="@voltagent/core",
        operation="memory.operation",
        reason="ai.response.finish_reason",
    ),
    Dialect(  # Claude Code
        "span.type",
        {"interaction": "agent", "llm_request": "model", "tool": "tool"},
        inputs=("user_prompt", "tool_input"),
        outputs=(
            *("response.model_output", "tool.output/output", "tool.output/content", "tool.output/diff"),
            "new_context",
        ),
        names=("tool_name",),
        ids=("tool_use_id",),
        failure=("success", False),
        within="tool.execution",
    ),
    Dialect(  # Laminar; its model calls follow OpenTelemetry's conventions
        "lmnr.span.type",
        {"tool": "tool"},
        inputs=("lmnr.span.input",),
        outputs=("lmnr.span.output",),
        ids=("lmnr.association.properties.metadata.tool_call_id",),
    ),
    Dialect(  # Langfuse's SDK
        "langfuse.observation.type",
        {"agent": "agent", "generation": "model", "tool": "tool", "retriever": "tool"},
        inputs=("langfuse.observation.input", "langfuse.trace.input"),
        outputs=("langfuse.observation.output", "langfuse.trace.output"),
        root=True,
        failure=("langfuse.observation.level", "ERROR"),
    ),
    Dialect(  # MLflow, which writes values as JSON
        "mlflow.spanType",
        {"agent": "agent", "llm": "model", "chat_model": "model", "tool": "tool", "retriever": "tool"},
        inputs=("mlflow.spanInputs",),
        outputs=("mlflow.spanOutputs",),
        root=True,
    ),
    Dialect(  # Logfire's integration of the OpenAI Agents SDK, whose model calls follow OpenTelemetry's
        "logfire.msg_template",
        {"function: {name}": "tool"},
        inputs=("input",),
        outputs=("output",),
        names=("name",),
    ),
    Dialect(  # LangSmith's SDK
        "langsmith.span.kind",
        {"llm": "model", "tool": "tool", "retriever": "tool"},
        inputs=("gen_ai.prompt",),
        outputs=("gen_ai.completion",),
        names=("gen_ai.tool.name",),
        ids=("gen_ai.tool.call.id",),
        root=True,
    ),
    Dialect(  # Mastra, whose steps hold model calls that follow OpenTelemetry's conventions
        "mastra.span.type",
        {"agent_run": "agent", "model_step": "model", "tool_call": "tool", "mcp_tool_call": "tool"},
        # The steps' inputs tell calls only as texts, "[tool: weigh]".
        inputs=("mastra.agent_run.input", "gen_ai.tool.call.arguments"),
        outputs=("mastra.agent_run.output", "mastra.model_step.output", "gen_ai.tool.call.result"),
        names=("gen_ai.tool.name",),
        ids=("gen_ai.tool.call.id",),
    ),
    Dialect(
        "genkit:metadata:subtype",
        {"agent": "agent", "flow": "agent", "model": "model", "tool": "tool", "tool.v2": "tool"},
        inputs=("genkit:input",),
        outputs=("genkit:output",),
        names=("genkit:name",),
        root=True,
    ),
    Dialect(  # Spring AI; its model calls have no content
        "spring.ai.kind",
        {"chat_client": "agent", "tool_call": "tool"},
        inputs=("spring.ai.tool.call.arguments",),
        outputs=("spring.ai.tool.call.result",),
        names=("spring.ai.tool.definition.name",),
        ids=("spring.ai.tool.call.id",),
        root=True,
        unrecorded=("failed calls",),  # their status is OK
    ),
    Dialect(  # Haystack
        "",
        {
            "haystack.agent.run": "agent",
            "haystack.agent.step.llm": "model",
            "haystack.agent.step.tool": "tool",
        },
        inputs=("haystack.agent.input", "haystack.agent.step.llm.input", "haystack.agent.step.tool.input"),
        outputs=(
            *("haystack.agent.output", "haystack.agent.step.llm.output", "haystack.agent.step.tool.output"),
        ),
        names=("haystack.tool.name",),
        failure=("haystack.tool.error", True),
    ),
    Dialect(  # any-agent, whose agents and tools follow OpenTelemetry's conventions
        genai.OPERATION,
        {"call_llm": "model"},
        inputs=("gen_ai.input.messages",),
        outputs=("gen_ai.output",),
    ),
    Dialect(  # what :func:`attributes_of` makes of a record
        "knowledgepulse.kind",
        {"agent": "agent", "model": "model", "tool": "tool"},
        inputs=("knowledgepulse.input",),
        outputs=("knowledgepulse.output",),
        root=True,
        server="knowledgepulse.server",
        is_json=False,
    ),
)

_BY_SCOPE = {dialect.scope: dialect for dialect in DIALECTS if dialect.scope}
_OTHERS = [dialect for dialect in DIALECTS if not dialect.scope]
_MARKS = {mark for dialect in _OTHERS for mark in ([dialect.kind] if dialect.kind else dialect.kinds)}
"""The attributes and names by which their spans are told."""


def attributes_of(kind: Kind | None, given: Any, returned: Any, server: Any = None) -> dict[str, Any]:
    """Return the attributes of a span that stands for a record of a tracer.

    Args:
        kind: the kind of call; None for a record that is none, or for an agent's if it has no parent.
        given: the input.
        returned: the output.
        server: the MCP server of a tool.
    """
    values = {"kind": kind or "", "input": given, "output": returned, "server": server}
    return {f"knowledgepulse.{name}": value for name, value in values.items()}


def runs_of_spans(spans: Iterable[Span]) -> Iterator[ir.Run | ConversionError]:
    """Yield the runs of spans that the table describes."""
    return runs_of(Node.of(span.trace_id, span.id, span.parent_id, partial(node, span)) for span in spans)


def follows(span: Span) -> bool:
    """Check whether a tracer of the table recorded a span, and whether it tells more than the others do."""
    return (dialect := _dialect_of(span)) is not None and (
        dialect.root
        or dialect.scope != ""
        or dialect.failure[0] != ""
        or _kind(span, dialect) in dialect.kinds
    )


def node(span: Span) -> Node:
    """Convert a span to a node; raise a ConversionError if its messages are malformed."""
    dialect = _dialect_of(span)
    assert dialect is not None  # noqa: S101 - `follows` is true
    kind = dialect.kinds.get(_kind(span, dialect))
    is_root = dialect.root and span.parent_id is None
    if kind is None and is_root:
        kind = "agent"
    losses, used = Losses(), {dialect.kind, dialect.failure[0], dialect.server, *dialect.names, *dialect.ids}
    used |= {dialect.operation, dialect.reason}
    scores = list(genai.scores_of(span))
    if all(ir.is_outcome(*score) for score in scores):
        used |= set(genai.SCORE)
    service = span.text("service.name")
    error = span.error("-" if _failed(span, dialect) and not span.failed else None)
    goes_on = span.attributes.get(dialect.reason) in _GOES_ON
    error = error or next(ir.cut_off(span.attributes.get(dialect.reason)), None)
    error = error or (ir.Error(interruption=True) if goes_on else None)
    is_kept = dialect.operation in span.attributes  # then the output is no message
    given, returned = (
        _first(span, names, dialect, used) for names in (dialect.inputs, () if is_kept else dialect.outputs)
    )
    event: ModelCall | ToolRun | None = None
    if kind == "tool":
        event = span.tool_run(
            span.text(*dialect.names) or span.name,
            given,
            returned,
            error,
            losses,
            call_id=span.text(*dialect.ids),
            mcp_server=span.text(dialect.server),
        )
    elif kind is not None:
        inputs = messages_of(given, "user", "input", losses)
        outputs = messages_of(returned, "assistant", "output", losses)
        if inputs or outputs or (kind == "model" and error is not None):
            event = ModelCall(inputs, outputs, error if kind == "model" else None)
    return node_of(
        span,
        event,
        error,
        used,
        losses,
        agent=kind == "agent",
        silent=kind == "model" and event is None,
        agent_id=(span.name or None if dialect.root else service) if kind == "agent" or is_root else None,
        names=(span.name if kind == "agent" or is_root else None, service),
        scores=scores,
        unrecorded=(ir.UNORDERED,) if goes_on else dialect.unrecorded if kind == "tool" else (),
    )


def with_failures(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield spans, of which those of tools have failed if a span within them says so."""
    spans = list(spans)
    by_id = {(span.trace_id, span.id): span for span in spans}
    for span in spans:
        dialect = _dialect_of(span)
        if dialect and _kind(span, dialect) == dialect.within and _failed(span, dialect):
            around = by_id.get((span.trace_id, span.parent_id or ""))
            if around:
                around.failed = True
                around.message = around.message or span.message or as_text(span.attributes.get("error"))
    yield from spans


def _dialect_of(span: Span) -> Dialect | None:
    if (own := _BY_SCOPE.get(span.scope)) is not None:
        return own
    if _MARKS.isdisjoint(span.attributes) and span.name not in _MARKS:  # as most spans
        return None
    return next(
        (d for d in _OTHERS if d.kind in span.attributes or (not d.kind and span.name in d.kinds)), None
    )


def _kind(span: Span, dialect: Dialect) -> str:
    kind = span.attributes.get(dialect.kind, "" if dialect.scope else span.name)
    operation = as_text(span.attributes.get(dialect.operation))
    return ".".join(filter(None, (as_text(parse_json(kind)).lower(), operation)))


def _failed(span: Span, dialect: Dialect) -> bool:
    name, value = dialect.failure
    return span.failed or (name in span.attributes and span.attributes[name] == value)


def _first(span: Span, names: tuple[str, ...], dialect: Dialect, used: set[str]) -> Any:
    """Return the first value among these names, parsed if it may be JSON text; None if there is none."""
    for name in names:
        event, _, attribute = name.rpartition("/")
        for told in (one for one in span.events if one.name == event) if event else (span,):
            if (value := told.attributes.get(attribute)) is not None:
                used.add(attribute)
                value = parse_json(value) if dialect.is_json else value
                return None if value == "null" else value
    return None
