"""The contract with producers and consumers of traces.

Build and serialise a raw trace::

    from knowledgepulse_schemas import ReasoningTrace

    trace = ReasoningTrace.new(
        objective="Fix the failing build",
        steps=[{"type": "thought", "content": "The lock file is stale."}],
        result_summary="The build is green",
        confidence=0.9,
        success=True,
        task_domain="code",
    )
    value = trace.to_json()

The JSON Schemas in this directory are generated from these models (``python -m knowledgepulse_schemas``).
"""

from knowledgepulse_schemas.dead_letter import DeadLetterHeaders
from knowledgepulse_schemas.headers import last_header
from knowledgepulse_schemas.trace import (
    Entity,
    KnowledgeGraphDelta,
    Metadata,
    Outcome,
    ReasoningTrace,
    Relationship,
    ScoredMetadata,
    ScoredTrace,
    SpanContext,
    Step,
    Task,
    Tool,
    ToolDefinition,
)

__all__ = [
    "DeadLetterHeaders",
    "Entity",
    "KnowledgeGraphDelta",
    "Metadata",
    "Outcome",
    "ReasoningTrace",
    "Relationship",
    "ScoredMetadata",
    "ScoredTrace",
    "SpanContext",
    "Step",
    "Task",
    "Tool",
    "ToolDefinition",
    "last_header",
]
