"""The chat completions API of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from producers.protocols import Request, event, mark, pieces, text_of
from producers.script import Turn

PATH = r"/chat/completions$"


def request(body: dict[str, Any], path: str) -> Request:
    messages = body["messages"]
    return Request(
        asked=[text_of(message.get("content") or "") for message in messages if message["role"] == "user"],
        results=[text_of(message["content"]) for message in messages if message["role"] == "tool"],
        has_tools=bool(body.get("tools")),
        stream=bool(body.get("stream")),
    )


def answer(turn: Turn, body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text, "refusal": None}
    if turn.calls:
        message["tool_calls"] = _calls(turn)
    choice = {"index": 0, "message": message, "finish_reason": _reason(turn), "logprobs": None}
    return _head(turn, body, "chat.completion") | {"choices": [choice], "usage": _USAGE}


def streamed(turn: Turn, body: dict[str, Any]) -> Iterator[str]:
    head = _head(turn, body, "chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces(turn.text)]
    for index, call in enumerate(_calls(turn)):
        function = call["function"]
        deltas.append({"tool_calls": [call | {"index": index, "function": function | {"arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in pieces(function["arguments"])
        ]
    for delta in deltas:
        yield event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield event(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": _reason(turn)}]})
    yield event(head | {"choices": [], "usage": _USAGE})
    yield event("[DONE]")


_USAGE = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


def _head(turn: Turn, body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{mark(turn)}", "object": kind, "created": 1_795_000_000, "model": body["model"]}


def _reason(turn: Turn) -> str:
    return "length" if turn.cut_off else "tool_calls" if turn.calls else "stop"


def _calls(turn: Turn) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
        }
        for call in turn.calls
    ]
