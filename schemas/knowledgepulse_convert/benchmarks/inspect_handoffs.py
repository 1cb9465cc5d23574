"""What a sub-agent of Inspect did that a conversation was handed over to.

When it comes back, Inspect rewrites the sub-agent's calls as texts of the agent and their results as the
user's, so that a model without its tools can read them. The events of a sample tell both as they were, under
the ids of these messages.

Source: https://inspect.aisi.org.uk/multi-agent.html, ``handoff``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import without

_DONE = "The {} agent has completed its work."


def as_it_was(
    messages: list[Any], events: list[dict[str, Any]], resolve: Callable[[Any], Any], losses: Losses
) -> list[Any]:
    """Return the messages of a sample, of which those of sub-agents are as the events tell them.

    Args:
        messages: the sample's messages.
        events: the sample's events.
        resolve: returns a value of an event with the long texts that it refers to.
        losses: gets what Inspect has rewritten.
    """
    tools = [event for event in events if event.get("event") == "tool"]
    notices = {_DONE.format(event["agent"]) for event in tools if isinstance(event.get("agent"), str)}
    if not notices:
        return messages
    outputs = {output["id"]: output for event in events for output in _outputs(event) if "id" in output}
    results = {event["message_id"]: event for event in tools if isinstance(event.get("message_id"), str)}

    def told(value: Any) -> Any:
        match value:
            case {"role": "assistant", "id": str(own)} if own in outputs and not value.get("tool_calls"):
                losses.add("messages[].content for another agent", value.get("content"))
                members = {name: outputs[own].get(name) for name in ("content", "tool_calls")}
                return without(value, *members) | resolve(members)
            case {"role": "user", "id": str(own)} if own in results:
                call = {"tool_call_id": "id", "function": "function", "error": "error"}
                members = {name: results[own].get(member) for name, member in call.items()}
                return value | {"role": "tool"} | resolve(members)
            case {"role": "user", "content": str(text)} if text in notices:
                return value | {"role": "system"}
        return value

    return [told(value) for value in messages]


def _outputs(event: dict[str, Any]) -> list[dict[str, Any]]:
    match event:
        case {"event": "model", "output": {"choices": [{"message": dict(message)}, *_]}}:
            return [message]
    return []
