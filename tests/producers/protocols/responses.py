"""The Responses API of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from producers.protocols import Request, event, mark, pieces, text_of
from producers.script import Call, Turn

PATH = r"/responses$"


def request(body: dict[str, Any], path: str) -> Request:
    items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
    return Request(
        asked=[text_of(item["content"]) for item in items if item.get("role") == "user"],
        results=[text_of(item["output"]) for item in items if str(item.get("type")).endswith("call_output")],
        has_tools=bool(body.get("tools")),
        stream=bool(body.get("stream")),
        before=_text_in(body.get("previous_response_id") or "resp_"),
    )


def answer(turn: Turn, body: dict[str, Any]) -> dict[str, Any]:
    return _response(body, turn, [_message(turn), *map(_call, turn.calls)])


def streamed(turn: Turn, body: dict[str, Any]) -> Iterator[str]:
    for number, part in enumerate(_events(turn, body)):
        yield event(part | {"sequence_number": number}, part["type"])


def _events(turn: Turn, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = _response(body, turn, []) | {"status": "in_progress", "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    message = _message(turn)
    yield from _message_events(message)
    for index, call in enumerate(map(_call, turn.calls), 1):
        yield from _call_events(index, call)
    end = "incomplete" if turn.cut_off else "completed"
    yield {"type": f"response.{end}", "response": answer(turn, body)}


def _message_events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    part = message["content"][0]
    place = {"item_id": message["id"], "output_index": 0, "content_index": 0}
    begun = message | {"status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
    yield {"type": "response.content_part.added", **place, "part": part | {"text": ""}}
    for piece in pieces(part["text"]):
        yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": message}


def _call_events(index: int, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"item_id": call["id"], "output_index": index}
    begun = call | {"status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for piece in pieces(call["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
    yield {
        "type": "response.function_call_arguments.done",
        **place,
        "arguments": call["arguments"],
        "name": call["name"],
    }
    yield {"type": "response.output_item.done", "output_index": index, "item": call}


def _response(body: dict[str, Any], turn: Turn, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{mark(turn)}",
        "object": "response",
        "created_at": 1_795_000_000,
        "status": "incomplete" if turn.cut_off else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if turn.cut_off else None,
        "instructions": body.get("instructions"),
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "usage": {
            "input_tokens": 20,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 30,
        },
    }


def _message(turn: Turn) -> dict[str, Any]:
    part = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
    status = "incomplete" if turn.cut_off else "completed"
    return {
        "type": "message",
        "id": f"msg_{mark(turn)}",
        "role": "assistant",
        "status": status,
        "content": [part],
    }


def _call(call: Call) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call.id}",
        "call_id": call.id,
        "name": call.tool,
        "arguments": json.dumps(call.arguments),
        "status": "completed",
    }


def _text_in(response_id: str) -> str:
    return bytes.fromhex(response_id.removeprefix("resp_")).decode()
