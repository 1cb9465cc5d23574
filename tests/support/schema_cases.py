"""A trace with every member of the schema, and values that the schema accepts and rejects for each."""

from __future__ import annotations

from typing import Any

MISSING = object()


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Set or remove the member at a path such as ``steps/0/type``."""
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split("/")]
    target: Any = document
    for part in parents:
        target = target[part]
    if value is MISSING:
        del target[last]
    else:
        target[last] = value
    return document


def full_document() -> dict[str, Any]:
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
            "models": ["a-model"],
            "native_id": "run 1",
            "parent_id": "kp:trace:0",
            "span_context": {"trace_id": "5b8efff798038103d269b633813fc60c", "span_id": "0ee19b7ec3c1b173"},
            "ending": "answered",
            "rewards": [{"name": "tests", "value": 0.5, "weight": 1, "low": 0, "high": 1}],
            "task_id": "build/7",
        },
        "task": {
            "objective": "Fix the build",
            "input_schema": {"type": "object"},
            "system": "Be brief.",
            "tools": [{"name": "shell", "description": "Runs a command.", "parameters": {"type": "object"}}],
        },
        "steps": [
            {"step_id": 0, "type": "thought", "content": "The lock file is stale."},
            {
                "step_id": 1,
                "type": "tool_call",
                "tool": {"name": "shell", "mcp_server": "local"},
                "tool_call_id": "call-1",
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


ACCEPTED = [
    ("@context", "https://openknowledgepulse.org/schema/v1"),
    ("@context", "https://knowledgepulse.dev/schema/v1"),
    ("id", "kp:trace:"),
    ("source_skill", MISSING),
    ("metadata/task_domain", "a domain that no profile has"),
    ("metadata/success", False),
    *(("metadata/visibility", value) for value in ("private", "org", "network")),
    *(("metadata/privacy_level", value) for value in ("aggregated", "federated", "private")),
    *(("metadata/quality_score", value) for value in (MISSING, None, 0, 1, 0.25)),
    *((f"metadata/{name}", MISSING) for name in ("agent_id", "framework", "validated_by")),
    ("metadata/validated_by", []),
    *(
        (f"metadata/{name}", value)
        for name in ("models", "native_id", "parent_id", "span_context")
        for value in (MISSING, None)
    ),
    ("metadata/models", []),
    *(
        (f"metadata/{name}", value)
        for name in ("rewards", "task_id")
        for value in (MISSING, None, "x", 1, 0.5, True, [], {}, [{}], [{"name": 1, "value": "x"}])
    ),
    *(("metadata/ending", value) for value in (MISSING, None, "cut_off", "gave_up", 1, True, [], {})),
    ("metadata/span_context/trace_flags", 1),
    *((f"task/{name}", value) for name in ("system", "tools") for value in (MISSING, None)),
    ("task/tools", []),
    ("task/tools/0/description", MISSING),
    *(("task/tools/0/parameters", value) for value in (MISSING, None, [], "text", {"type": "object"})),
    ("steps/1/tool_call_id", None),
    *(("task/input_schema", value) for value in (MISSING, None, [], "text", 3)),
    *(("steps/0/type", value) for value in ("thought", "tool_call", "observation", "error_recovery")),
    ("steps/0", {"step_id": 7, "type": "thought"}),
    ("steps/1/content", ""),
    ("steps/1/tool/mcp_server", MISSING),
    ("steps/1/input", {}),
    *(("steps/1/latency_ms", value) for value in (0, 3, 0.5)),
    *(("outcome/confidence", value) for value in (0, 1, 0.0, 1.0)),
    ("outcome/result_summary", ""),
    ("knowledge_graph_delta", MISSING),
    ("knowledge_graph_delta/entities", []),
]

REFUSED = [
    *((name, MISSING) for name in ("@context", "@type", "id", "metadata", "task", "steps", "outcome")),
    *((name, None) for name in ("@context", "@type", "id", "metadata", "task", "steps", "outcome")),
    ("@context", "https://openknowledgepulse.org/schema/v2"),
    ("@context", ["https://openknowledgepulse.org/schema/v1"]),
    ("@type", "Trace"),
    *(("id", value) for value in ("", "trace:1", "x kp:trace:1", "KP:trace:1", 1)),
    ("source_skill", 1),
    *(
        (f"metadata/{name}", MISSING)
        for name in ("created_at", "task_domain", "success", "visibility", "privacy_level")
    ),
    ("metadata/created_at", 1769860800),
    *(("metadata/task_domain", value) for value in ("", None, 1)),
    *(("metadata/success", value) for value in ("true", 1, None)),
    *(("metadata/visibility", value) for value in ("public", "NETWORK", None)),
    *(("metadata/privacy_level", value) for value in ("network", None)),
    *(("metadata/quality_score", value) for value in ("0.9", -0.01, 1.01, True)),
    ("metadata/agent_id", 1),
    ("metadata/framework", 1),
    *(("metadata/validated_by", value) for value in ("kp:agent:1", [1])),
    *(("metadata/models", value) for value in ("a-model", [1], {})),
    *((f"metadata/{name}", 1) for name in ("native_id", "parent_id")),
    *(
        ("metadata/span_context", value)
        for value in ("00-5b8efff798038103d269b633813fc60c-0ee19b7ec3c1b173-01", [], {"trace_id": "5b8e"})
    ),
    ("metadata/span_context/span_id", 1),
    *(("task/objective", value) for value in (MISSING, "", None, 1)),
    *(("task/system", value) for value in (1, ["Be brief."])),
    *(("task/tools", value) for value in ({}, "shell", ["shell"], [{}], [{"name": None}])),
    ("task/tools/0/description", 1),
    *(("steps/1/tool_call_id", value) for value in (1, {})),
    *(("steps", value) for value in ([], {}, [[]], ["thought"])),
    *(("steps/0/step_id", value) for value in (MISSING, -1, 1.5, "0", True, None)),
    *(("steps/0/type", value) for value in (MISSING, "Thought", "reflection", None)),
    ("steps/0/content", 1),
    *(("steps/1/tool", value) for value in ("shell", {}, {"name": 1}, {"name": None})),
    ("steps/1/tool/mcp_server", 1),
    *(("steps/1/input", value) for value in ("make", [])),
    ("steps/1/output_summary", {}),
    *(("steps/1/latency_ms", value) for value in (-0.5, "12", True)),
    *(("outcome/confidence", value) for value in (MISSING, "0.9", True, 1.5, -0.1, None)),
    *(("outcome/result_summary", value) for value in (MISSING, None, 1)),
    *(("knowledge_graph_delta/entities", value) for value in ({}, [{"name": "x"}], [{"type": "x"}])),
    *(
        ("knowledge_graph_delta/relationships", value)
        for value in ([{"fact": "x"}], [{"valid_from": "x"}], [{"fact": 1, "valid_from": "x"}])
    ),
]
