"""A scored trace in the registry's schema, with the score that led to its contribution.

The registry validates with the SDK's ``zod-schemas.ts`` and drops all other members, so the score and the
policy are added to the facts of the knowledge graph.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal

import msgspec

from knowledgepulse_schemas.trace import CONTEXTS, ScoredTrace, parse_date_time
from knowledgepulse_worker import __version__
from knowledgepulse_worker.records.score_header import encode_score, without_content
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import RegistrySettings
from knowledgepulse_worker.tools.common.egress_rule import EgressRule, HoldReason, is_clean

MAX_ID = 500
"""Largest number of characters of an id, which must fit into a URL."""


_SENT: Any = {
    **dict.fromkeys(("context", "type", "id", "source_skill", "outcome", "knowledge_graph_delta"), True),
    "metadata": {
        *("created_at", "task_domain", "success", "quality_score"),
        *("visibility", "privacy_level", "framework"),
    },
    "task": {"objective", "input_schema"},
    "steps": {
        "__all__": {"step_id", "type", "content", "tool", "input", "output_summary", "latency_ms"},
    },
}
"""The members in the registry's schema that a sender sets; ``agent_id`` is added from the settings."""


@dataclass(frozen=True, slots=True)
class KnowledgeUnit:
    """The request for one trace; the registry calls it a KnowledgeUnit.

    Attributes:
        id: the trace's id, also in the registry.
        body: JSON, which is the same for the same record and release.
    """

    id: str
    body: bytes

    @property
    def idempotency_key(self) -> str:
        """The hash of the body, computed as the SDK does."""
        return hashlib.sha256(self.body).hexdigest()


def unit_of(
    value: bytes, record: ScoredRecord, registry: RegistrySettings
) -> KnowledgeUnit | HoldReason | Literal["invalid"]:
    """Return the unit to send for a contributed record, or the reason for sending nothing.

    ``value``: the record's trace.
    """
    try:
        trace = _known(value)
    except (ValueError, OverflowError, RecursionError):
        return "invalid"
    graph = trace.setdefault("knowledge_graph_delta", {"entities": [], "relationships": []})
    since = trace["metadata"]["created_at"]
    facts = (
        f"kp-score {encode_score(without_content(record.score)).decode()}",
        f"kp-policy {record.policy}",
        f"kp-release knowledgepulse-worker {__version__}",
    )
    graph["relationships"] += [{"fact": fact, "valid_from": since} for fact in facts]
    rule = EgressRule(registry.visibilities, require_clean=registry.require_clean)
    metadata = trace["metadata"]
    held = rule.withholding_guard(metadata["visibility"], metadata["privacy_level"]) or rule.held_by_content(
        lambda: is_clean(trace)
    )
    if held is not None:
        return held
    trace["metadata"]["agent_id"] = registry.agent_id
    return KnowledgeUnit(trace["id"], msgspec.json.encode(trace))


def _known(value: bytes) -> dict[str, Any]:
    """Return the members of a trace in the registry's schema; raise ValueError if it would refuse them."""
    model = ScoredTrace.model_validate_json(value, extra="ignore")
    trace = model.model_dump(include=_SENT, by_alias=True, exclude_none=True)
    if len(model.id) > MAX_ID or not isinstance(trace["task"].get("input_schema", {}), dict):
        raise ValueError("refused")
    created = parse_date_time(trace["metadata"]["created_at"])
    created = created.replace(tzinfo=UTC) if created.tzinfo is None else created.astimezone(UTC)
    # The only form of a date-time that the registry accepts.
    trace["metadata"]["created_at"] = created.replace(tzinfo=None).isoformat() + "Z"
    return trace | {"@context": CONTEXTS[0]}  # the registry accepts no other name of this schema
