"""OpenAI's chat messages with tools, and ATIF trajectories.

Sources: https://platform.openai.com/docs/guides/fine-tuning and the types of ``openai``;
https://www.harborframework.com/docs/agents/trajectory-format and the types of ``atif``.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_worker.tools.export.turns import Call, Conversation, Turn, turns_of


def chat_of(trace_id: str, conversation: Conversation) -> dict[str, Any]:
    """Return a line of fine-tuning data: id, messages, and tools if any was called or defined.

    A call whose result the trace lacks gets an empty one, as the format demands it, but for a last turn's.
    """
    messages: list[dict[str, Any]] = []
    if conversation.system is not None:
        messages.append({"role": "system", "content": conversation.system})
    turns = turns_of(conversation)
    for turn in turns:
        messages.append(_message(turn))
        ended = turn is turns[-1] and all(call.result is None for call in turn.calls)
        messages += [] if ended else [_result(call) for call in turn.calls]
    line: dict[str, Any] = {"id": trace_id, "messages": messages}
    if tools := [_tool(one) for one in conversation.tools]:
        line["tools"] = tools
    return line


def _message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.text or ""}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.json}}
            for call in turn.calls
        ]
    return message


def _result(call: Call) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": call.result or ""}


def _tool(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in OpenAI's form; one without a known schema takes any arguments."""
    parameters = definition.get("parameters")
    function = {
        "name": definition["name"],
        "description": str(definition.get("description") or ""),
        "parameters": parameters if isinstance(parameters, dict) else {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": function}


def trajectory_of(trace_id: str, agent: str, conversation: Conversation) -> dict[str, Any]:
    """Return the trace as an ATIF trajectory."""
    steps: list[dict[str, Any]] = []
    if conversation.system is not None:
        steps.append({"source": "system", "message": conversation.system})
    for turn in turns_of(conversation):
        step: dict[str, Any] = {
            "source": "user" if turn.role == "user" else "agent",
            "message": turn.text or "",
        }
        if turn.calls:
            step["tool_calls"] = [
                {"tool_call_id": call.id, "function_name": call.name, "arguments": call.arguments}
                for call in turn.calls
            ]
            results = [call for call in turn.calls if call.result is not None]
            if results:
                step["observation"] = {
                    "results": [{"source_call_id": call.id, "content": call.result} for call in results]
                }
        steps.append(step)
    return {
        "schema_version": "ATIF-v1.4",
        "session_id": trace_id,
        "agent": {"name": agent, "version": "unknown"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
    }
