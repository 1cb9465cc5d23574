"""Traces with secrets and identifiers in every text."""

from __future__ import annotations

import copy
import json

from hypothesis import strategies as st

from knowledgepulse_schemas import ReasoningTrace

KEY = "sk-abc123def456ghi789jkl012mno345"
JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0"
    ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)

PLANTED = [
    KEY, JWT, "hunter2", "AKIAIOSFODNN7EXAMPLE", "alice@example.com", "+441234567890", "10.20.30.40",
    "/home/alice", "C:\\Users\\charlie", "postgresql://admin:pass@db:5432/app", "xoxb-fake-token", "13371337",
]  # fmt: skip


def sentence(planted):
    """Return a natural sentence that contains the planted text."""
    named = {KEY: "key ", JWT: "Bearer ", "hunter2": "password=", "13371337": "password="}
    return f"{named[planted]}{planted}" if planted in named else f"at {planted} !"


def plant(draw, value):
    """Return a document with something planted in each text, and in the name of each unknown member."""
    if isinstance(value, str):
        return f"{value} {sentence(draw(st.sampled_from(PLANTED)))}, {draw(st.text(max_size=5))}"
    if isinstance(value, list):
        return [plant(draw, item) for item in value]
    if isinstance(value, dict):
        return {name: plant(draw, member) for name, member in value.items()}
    return value


@st.composite
def planted_traces(draw):
    """Traces with secrets and identifiers in every text that the schema leaves free."""
    trace = ReasoningTrace.new(
        objective="a",
        steps=[{"type": "tool_call", "content": "b", "tool": {"name": "c", "mcp_server": "d"},
                "input": {"e": ["f", {"g": "h"}], sentence(draw(st.sampled_from(PLANTED))): 1},
                "output_summary": "i"}],
        result_summary="j", confidence=0.5, success=True, task_domain="k", agent_id="l", framework="m",
        validated_by=["n"], visibility="network",
    ).model_dump(mode="json", by_alias=True, exclude_none=True)  # fmt: skip
    trace["source_skill"], trace["free"] = "o", {"p": "q"}
    trace["task"]["input_schema"] = {"r": "s"}
    trace["knowledge_graph_delta"] = {
        "entities": [{"name": "t", "type": "u"}], "relationships": [{"fact": "v", "valid_from": "w"}],
    }  # fmt: skip
    fixed = copy.deepcopy(trace)
    trace = plant(draw, trace)
    for name in ("@context", "@type", "id"):
        trace[name] = fixed[name]
    trace["id"] = draw(st.sampled_from([fixed["id"], f"kp:trace:{sentence(draw(st.sampled_from(PLANTED)))}"]))
    for name in ("created_at", "visibility"):
        trace["metadata"][name] = fixed["metadata"][name]
    trace["metadata"]["privacy_level"], trace["metadata"]["quality_score"] = (
        draw(st.sampled_from(["aggregated", "federated"])),
        0.9,
    )
    trace["steps"][0]["type"] = "tool_call"
    trace["steps"][0]["input"] |= {
        "password": "hunter2", "DB-password:": ["hunter2"], "apiKey": 13371337,
        "arguments": json.dumps({"old_token": "hunter2", "nested": json.dumps({"secret": "hunter2"})}),
    }  # fmt: skip
    return trace
