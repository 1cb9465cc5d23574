"""The messages API of Anthropic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from producers.protocols import Request, event, mark, pieces, text_of
from producers.script import Turn

PATH = r"/v1/messages$"


def request(body: dict[str, Any], path: str) -> Request:
    blocks = [
        block for message in body["messages"] if message["role"] == "user" for block in _blocks(message)
    ]
    return Request(
        asked=[block["text"] for block in blocks if block["type"] == "text"],
        results=[text_of(block.get("content", "")) for block in blocks if block["type"] == "tool_result"],
        has_tools=bool(body.get("tools")),
        stream=bool(body.get("stream")),
    )


def answer(turn: Turn, body: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {
            "type": "tool_use",
            "id": f"toolu_{call.id}",
            "name": call.tool,
            "input": call.arguments,
        }
        for call in turn.calls
    ]
    return {
        "id": f"msg_{mark(turn)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": turn.text}, *calls],
        "stop_reason": "max_tokens" if turn.cut_off else "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 10},
    }


def streamed(turn: Turn, body: dict[str, Any]) -> Iterator[str]:
    return (event(part, part["type"]) for part in _events(answer(turn, body)))


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": message | {"content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            begun, deltas = (
                block | {"text": ""},
                [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])],
            )
        else:
            begun = block | {"input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in pieces(json.dumps(block["input"]))
            ]
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 10}}
    yield {"type": "message_stop"}


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
