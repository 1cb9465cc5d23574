"""The reasoning trace, raw and scored (KnowledgePulse schema v1).

Types are strict: ``"0.9"`` is not a valid confidence. Unknown fields are kept at every level, so that agents
can add their own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal, Self, get_args
from uuid import UUID, uuid4, uuid5

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

CONTEXTS = ("https://openknowledgepulse.org/schema/v1", "https://knowledgepulse.dev/schema/v1")
ID_PREFIX = "kp:trace:"

_UUID_ID = re.compile(rf"{ID_PREFIX}[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}")
_NAMESPACE = UUID("7e0d5a7c-3b0b-5f0e-9a51-6f1f0f3c9a01")


def trace_id_of(native_id: str) -> str:
    """Return the trace id of a run, a version-5 UUID made from the run's id in its original system."""
    return f"{ID_PREFIX}{uuid5(_NAMESPACE, native_id)}"


def is_uuid_id(trace_id: str) -> bool:
    """Return whether a trace's id is a UUID, which reveals nothing by itself."""
    return _UUID_ID.fullmatch(trace_id) is not None


# An RFC 3339 date-time whose offset and seconds are optional, as in ISO 8601.
_ISO_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d+)?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)


def check_date_time(text: str) -> str:
    """Return a text that is an :data:`IsoDateTime`.

    Raises:
        ValueError: it is none.
    """
    if not _ISO_DATE_TIME.fullmatch(text):
        raise ValueError("not an ISO 8601 date-time such as 2026-01-31T12:00:00Z")
    parse_date_time(text)
    return text


def parse_date_time(text: str) -> datetime:
    """Parse an :data:`IsoDateTime`; the result is naive if the text has no offset.

    Raises:
        ValueError: no such date or time exists.
    """
    return datetime.fromisoformat(text.replace(",", ".").upper())


IsoDateTime = Annotated[
    str, AfterValidator(check_date_time), Field(json_schema_extra={"format": "date-time"})
]
"""A date-time, kept as the original text so that serialising a model does not change it."""

Visibility = Literal["private", "org", "network"]
"""Who may see a trace."""

PrivacyLevel = Literal["aggregated", "federated", "private"]
"""How a trace's content may be used."""

Ending = Literal["answered", "submitted", "failed", "cut_off"]
"""How a run ended: with an answer, with a result that is unchecked, with a failure, or before it was done."""

ENDINGS: tuple[Ending, ...] = get_args(Ending)


def ending_of(value: Any) -> Ending | None:
    """Return how a run ended by its ``metadata.ending``; None if that is missing or has any other form."""
    return next((ending for ending in ENDINGS if ending == value), None)


def is_judged(outcome_source: Any) -> bool | None:
    """Return whether somebody judged a run by its ``metadata.outcome_source``; None if it does not tell."""
    return outcome_source == "label" if isinstance(outcome_source, str) else None


def rewards_of(value: Any) -> dict[str, float]:
    """Return the rewards in ``metadata.rewards``, by name; what has another form is ignored."""
    items = value if isinstance(value, list) else []
    return {
        item["name"]: float(item["value"])
        for item in items
        if isinstance(item, dict) and isinstance(item.get("name"), str) and _is_finite(item.get("value"))
    }


def _is_finite(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max


def task_id_of(value: Any) -> str | None:
    """Return the id of the run's task by its ``metadata.task_id``; None if that is no text or empty."""
    return value if isinstance(value, str) and value else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", serialize_by_alias=True, defer_build=True)


class SpanContext(_Model):
    """OpenTelemetry's ids of a span."""

    trace_id: str = Field(description="32 hexadecimal digits in lower case")
    span_id: str = Field(description="16 hexadecimal digits in lower case")


class Metadata(_Model):
    """Origin, subject and visibility of a trace."""

    created_at: IsoDateTime = Field(description="ISO 8601 date-time")
    task_domain: str = Field(
        min_length=1, description="selects the weight profile; unknown domains use `default`"
    )
    success: bool
    visibility: Visibility = Field(
        description="passed through; affects the decision only if the policy has a guard for it"
    )
    privacy_level: PrivacyLevel = Field(
        description="passed through like `visibility`; `private` traces never leave the organization"
    )
    quality_score: float | None = Field(default=None, ge=0, le=1, description="set by the worker")
    agent_id: str | None = None
    framework: str | None = None
    validated_by: list[str] | None = Field(default=None, fail_fast=True)
    models: list[str] | None = Field(default=None, fail_fast=True, description="the models that answered")
    native_id: str | None = Field(default=None, description="the run's id in the system it comes from")
    parent_id: str | None = Field(default=None, description="the trace that started this run as a subagent")
    span_context: SpanContext | None = Field(default=None, description="the agent's span; gets the score")
    # Of any type: what a producer wrote here before the member had a meaning stays valid.
    ending: Any = Field(
        default=None,
        description="how the run ended: `answered`, `submitted`, `failed` or `cut_off`; others are ignored",
        examples=list(ENDINGS),
    )
    rewards: Any = Field(
        default=None,
        description="what graders gave the run, each in its own scale: a list of objects with a `name` and a "
        "`value`, and `weight`, `low` and `high` if they are known; others are ignored",
        examples=[[{"name": "tests", "value": 0.5, "low": 0, "high": 1}]],
    )
    task_id: Any = Field(
        default=None,
        description="the id of the task, a text, which other runs of the task share; others are ignored",
        examples=["gsm8k/17"],
    )


class ToolDefinition(_Model):
    """A tool that the agent could call."""

    name: str
    description: str | None = None
    parameters: Any = None


class Task(_Model):
    """The agent's task."""

    objective: str = Field(min_length=1)
    input_schema: Any = None
    system: str | None = Field(default=None, description="the system text")
    tools: list[ToolDefinition] | None = Field(
        default=None, fail_fast=True, description="the tools that the agent could call"
    )


class Tool(_Model):
    """The tool of a tool call or an observation."""

    name: str
    mcp_server: str | None = None


class Step(_Model):
    """One step of the reasoning."""

    step_id: int = Field(ge=0)
    type: Literal["thought", "tool_call", "observation", "error_recovery"]
    content: str | None = None
    tool: Tool | None = None
    tool_call_id: str | None = Field(default=None, description="the same in a call and in its response")
    input: dict[str, Any] | None = None
    output_summary: str | None = None
    latency_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class Outcome(_Model):
    """The result of the run."""

    result_summary: str
    confidence: float = Field(ge=0, le=1)


class Entity(_Model):
    """A knowledge graph entity."""

    name: str
    type: str


class Relationship(_Model):
    """A knowledge graph fact."""

    fact: str
    valid_from: str


class KnowledgeGraphDelta(_Model):
    """Entities and facts that the trace adds to a knowledge graph."""

    entities: list[Entity] = Field(default=[], fail_fast=True)
    relationships: list[Relationship] = Field(default=[], fail_fast=True)


class ReasoningTrace(_Model):
    """A raw trace, as published by an agent."""

    context: Literal["https://openknowledgepulse.org/schema/v1", "https://knowledgepulse.dev/schema/v1"] = (
        Field(alias="@context")
    )
    type: Literal["ReasoningTrace"] = Field(alias="@type")
    id: str = Field(pattern=f"^{ID_PREFIX}")
    source_skill: str | None = None
    metadata: Metadata
    task: Task
    steps: list[Step] = Field(min_length=1, fail_fast=True)
    outcome: Outcome
    knowledge_graph_delta: KnowledgeGraphDelta | None = None

    @classmethod
    def new(
        cls,
        *,
        objective: str,
        steps: Sequence[Mapping[str, Any]],
        result_summary: str,
        confidence: float,
        success: bool,
        task_domain: str,
        **metadata: Any,
    ) -> Self:
        """Build a raw trace, filling in its id, its creation time and the step ids.

        Args:
            objective: the agent's task; must not be empty.
            steps: at least one step, with a ``type`` and any other fields of :class:`Step`.
            result_summary: a summary of the result.
            confidence: confidence in the outcome, from 0 to 1.
            success: whether the task succeeded.
            task_domain: selects the weight profile.
            **metadata: further fields of :class:`Metadata`; ``visibility`` and ``privacy_level`` default to
                ``private``.

        Raises:
            pydantic.ValidationError: a value does not fit the schema.
        """
        return cls.model_validate(
            {
                "@context": CONTEXTS[0],
                "@type": "ReasoningTrace",
                "id": f"{ID_PREFIX}{uuid4()}",
                "metadata": {
                    "created_at": _now(),
                    "task_domain": task_domain,
                    "success": success,
                    "visibility": "private",
                    "privacy_level": "private",
                    **metadata,
                },
                "task": {"objective": objective},
                "steps": [{"step_id": number, **step} for number, step in enumerate(steps)],
                "outcome": {"result_summary": result_summary, "confidence": confidence},
            }
        )

    def to_json(self) -> bytes:
        """Return the Kafka record value: UTF-8 JSON without unset fields."""
        return _adapter(type(self)).dump_json(self, exclude_unset=True)


@cache
def _adapter(model: type[ReasoningTrace]) -> TypeAdapter[ReasoningTrace]:
    """Return the adapter of a model, which writes bytes; the model itself would also make a text of them."""
    return TypeAdapter(model)


class ScoredMetadata(Metadata):
    """Metadata of a scored trace, which must have a ``quality_score``."""

    quality_score: float = Field(ge=0, le=1, description="set by the worker")


class ScoredTrace(ReasoningTrace):
    """A scored trace, as published to `contribute` or `rejected`."""

    metadata: ScoredMetadata
