"""The generateContent API of Gemini."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from producers.protocols import Request, event, pieces
from producers.script import Turn

PATH = r":(stream)?[gG]enerateContent$"


def request(body: dict[str, Any], path: str) -> Request:
    parts = [
        part for content in body["contents"] if content.get("role") != "model" for part in content["parts"]
    ]
    return Request(
        asked=[part["text"] for part in parts if "text" in part],
        results=[
            text for part in parts if "functionResponse" in part for text in _texts(part["functionResponse"])
        ],
        has_tools=bool(body.get("tools")),
        stream=":stream" in path,
    )


def answer(turn: Turn, body: dict[str, Any]) -> dict[str, Any]:
    return _response(turn, [{"text": turn.text}, *_calls(turn)], end=True)


def streamed(turn: Turn, body: dict[str, Any]) -> Iterator[str]:
    for piece in pieces(turn.text):
        yield event(_response(turn, [{"text": piece}], end=False))
    yield event(_response(turn, _calls(turn) or [{"text": ""}], end=True))


def _response(turn: Turn, parts: list[dict[str, Any]], *, end: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if end:
        candidate["finishReason"] = "MAX_TOKENS" if turn.cut_off else "STOP"
    usage = {"promptTokenCount": 20, "candidatesTokenCount": 10, "totalTokenCount": 30}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted", "responseId": "r1"}


def _calls(turn: Turn) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": call.id, "name": call.tool, "args": call.arguments}} for call in turn.calls
    ]


def _texts(response: dict[str, Any]) -> list[str]:
    """Return a function's response as the model sees it: the whole object, and each text in it."""
    said = response["response"]
    return [json.dumps(said), *(value for value in said.values() if isinstance(value, str))]
