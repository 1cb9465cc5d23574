"""A scored trace as a registry takes it: the members of its schema and no others, and why it was contributed.

The schema is ``ReasoningTraceSchema`` of the SDK's ``zod-schemas.ts``, with which the registry validates. It
drops other members, so what the worker has to say stands among the facts of the knowledge graph.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from knowledgepulse_schemas.trace import CONTEXTS, Visibility, is_uuid_id, parse_date_time
from knowledgepulse_worker import __version__
from knowledgepulse_worker.records.entry import ScoreHeader
from knowledgepulse_worker.redaction.departure import Held, held_back
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import RegistrySettings

MAX_ID = 500
"""Characters of an id: it has to fit into a URL, to be looked up and deleted."""

_Unit = Annotated[float, Meta(ge=0, le=1)]
_Text = Annotated[str, Meta(min_length=1)]


class _Metadata(msgspec.Struct, omit_defaults=True):
    created_at: str
    task_domain: _Text
    success: bool
    quality_score: _Unit
    visibility: Visibility
    privacy_level: Literal["aggregated", "federated", "private"]
    agent_id: str | None = None
    framework: str | None = None


class _Task(msgspec.Struct, omit_defaults=True):
    objective: _Text
    input_schema: dict[str, Any] | None = None


class _Tool(msgspec.Struct, omit_defaults=True):
    name: str
    mcp_server: str | None = None


class _Step(msgspec.Struct, omit_defaults=True):
    step_id: Annotated[int, Meta(ge=0)]
    type: Literal["thought", "tool_call", "observation", "error_recovery"]
    content: str | None = None
    tool: _Tool | None = None
    input: dict[str, Any] | None = None
    output_summary: str | None = None
    latency_ms: Annotated[float, Meta(ge=0)] | None = None


class _Outcome(msgspec.Struct):
    result_summary: str
    confidence: _Unit


class _Entity(msgspec.Struct):
    name: str
    type: str


class _Relationship(msgspec.Struct):
    fact: str
    valid_from: str


class _KnowledgeGraph(msgspec.Struct):
    entities: list[_Entity] = []
    relationships: list[_Relationship] = []


class _Trace(msgspec.Struct, omit_defaults=True):
    context: str = msgspec.field(name="@context")
    type: Literal["ReasoningTrace"] = msgspec.field(name="@type")
    id: Annotated[str, Meta(pattern="^kp:trace:", max_length=MAX_ID)]
    metadata: _Metadata
    task: _Task
    steps: Annotated[list[_Step], Meta(min_length=1)]
    outcome: _Outcome
    source_skill: str | None = None
    knowledge_graph_delta: _KnowledgeGraph | None = None


_decode = msgspec.json.Decoder(_Trace).decode


@dataclass(frozen=True, slots=True)
class Unit:
    """What is sent: a KnowledgeUnit in the registry's words.

    Attributes:
        id: the trace's, and so the registry's.
        body: JSON, the same for the same record and release.
    """

    id: str
    body: bytes

    @property
    def idempotency_key(self) -> str:
        """The hash of the body, as the SDK makes it."""
        return hashlib.sha256(self.body).hexdigest()


def unit_of(
    value: bytes, record: ScoredRecord, registry: RegistrySettings
) -> Unit | Held | Literal["invalid"]:
    """Return what to send of a contributed record, or why nothing is sent.

    Args:
        value: the record's value.
        record: the same, with its headers.
        registry: whose agent contributes, and what may leave.
    """
    try:
        trace = _decode(value)
        trace.metadata.created_at = _utc(trace.metadata.created_at)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return "invalid"
    trace.context = CONTEXTS[0]  # the registry takes no other name of the same schema
    trace.metadata.agent_id = registry.agent_id
    held = held_back(_builtins(trace), registry.visibilities, require_clean=registry.require_clean)
    if held is not None:
        return held
    graph = trace.knowledge_graph_delta or _KnowledgeGraph()
    trace.knowledge_graph_delta = _KnowledgeGraph(
        graph.entities, graph.relationships + _provenance(record, trace.metadata.created_at)
    )
    return Unit(trace.id, msgspec.json.encode(trace))


def _builtins(trace: _Trace) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(trace)
    del document["metadata"]["agent_id"]  # the operator's choice, which may well be an address
    return document


def _provenance(record: ScoredRecord, since: str) -> list[_Relationship]:
    """Return who decided, as facts: the score and its parts, the policy and the release."""
    header = ScoreHeader.of(record.score)
    if header.nearest is not None and not is_uuid_id(header.nearest):
        header = msgspec.structs.replace(header, nearest=None)  # an id that says more may say too much
    facts = (
        f"kp-score {msgspec.json.encode(header).decode()}",
        f"kp-policy {record.policy}",
        f"kp-release knowledgepulse-worker {__version__}",
    )
    return [_Relationship(fact, since) for fact in facts]


def _utc(text: str) -> str:
    """Return a date-time in the only form that the registry takes."""
    moment = parse_date_time(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.replace(tzinfo=None).isoformat() + "Z"
