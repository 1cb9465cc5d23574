"""What the APIs of models have in common: a request is read, and a turn is written as its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from producers.script import Turn


@dataclass(frozen=True)
class Request:
    """What the model is asked.

    Attributes:
        asked: the user's texts, in order.
        results: what the tools answered, as the model sees it.
        has_tools: whether any tool is offered.
        stream: whether the answer shall be streamed.
        before: the model's last text, if the request adds to a conversation that the API keeps.
    """

    asked: list[str]
    results: list[str]
    has_tools: bool
    stream: bool
    before: str = ""


def text_of(content: Any) -> str:
    """Return the text of a message's content, which is a text or has parts with texts."""
    if isinstance(content, list):
        return "\n".join(map(text_of, content))
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content") or content.get("output") or "")
    return str(content)


def event(data: Any, name: str | None = None) -> str:
    """Return a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


def pieces(text: str) -> Iterator[str]:
    """Cut a text into pieces, as models stream it."""
    half = len(text) // 2
    yield from (piece for piece in (text[:half], text[half:]) if piece)


def mark(turn: Turn) -> str:
    """Return a turn's text as a part of an id, which differs from those of the other turns."""
    return turn.text.encode().hex()
