"""A trace as JSON data, and the published schema to validate it."""

from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.published import json_schema


def _full_document() -> dict[str, Any]:
    return {
        "@context": "https://openknowledgepulse.org/schema/v1",
        "@type": "ReasoningTrace",
        "id": "kp:trace:1",
        "source_skill": "build-doctor",
        "metadata": {
            "created_at": "2026-01-31T12:00:00.000Z",
            "task_domain": "code",
            "success": True,
            "visibility": "network",
            "privacy_level": "aggregated",
            "quality_score": 0.5,
            "agent_id": "kp:agent:1",
            "framework": "langgraph",
            "validated_by": ["kp:agent:2"],
        },
        "task": {"objective": "Fix the build", "input_schema": {"type": "object"}},
        "steps": [
            {"step_id": 0, "type": "thought", "content": "The lock file is stale."},
            {
                "step_id": 1,
                "type": "tool_call",
                "tool": {"name": "shell", "mcp_server": "local"},
                "input": {"command": "make lock"},
                "output_summary": "done",
                "latency_ms": 12.5,
            },
        ],
        "outcome": {"result_summary": "The build is green", "confidence": 0.9},
        "knowledge_graph_delta": {
            "entities": [{"name": "lock file", "type": "artefact"}],
            "relationships": [{"fact": "the lock was stale", "valid_from": "2026-01-31"}],
        },
    }


@pytest.fixture(scope="session")
def full_document() -> Callable[[], dict[str, Any]]:
    """Return a factory of valid traces with every member of the schema."""
    return _full_document


@pytest.fixture(scope="session")
def published() -> Draft202012Validator:
    """Return a validator for the published JSON Schema of raw traces."""
    return Draft202012Validator(json_schema(ReasoningTrace))
