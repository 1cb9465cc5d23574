"""Content that is a text or a list of typed parts, as in OpenAI's API and formats modelled on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import InputModel
from knowledgepulse_schemas.convert.words import words

_MEDIA = words(
    """
    image image_url image_file input_image audio input_audio video video_url media file input_file document
    computer_screenshot cache_point redacted_thinking refusal function namespace
    """
)
"""Types of parts that hold no text of the conversation, such as the tools that a search has found."""
_TEXTS = {"text", "input_text", "output_text", "summary_text", "reasoning_text", "tool_output"}


class Content(InputModel):
    """A part of a content."""

    type: str
    text: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    # a call, in exports of sessions
    tool_call_id: str | None = None
    name: str | None = None
    arguments: Any = None


def parts_of(content: str | Iterable[str | Content] | None, path: str, losses: Losses) -> Iterator[hub.Part]:
    """Convert the texts, reasoning and refusals of a content; other parts, such as images, are losses."""
    for part in [content] if isinstance(content, str) else content or ():
        if isinstance(part, str):
            yield hub.Text(part)
        elif part.type in _TEXTS:
            yield hub.Text(part.text or "")
        elif part.type == "reasoning" and part.reasoning is not None:
            yield hub.Reasoning(part.reasoning)
        elif part.type == "tool_call" and part.name:
            yield hub.ToolCall(part.name, part.arguments, part.tool_call_id)
        elif part.refusal:
            yield from (hub.Text(part.refusal), hub.Error())
        elif part.type in _MEDIA:
            losses.add(f"{path}[].{part.type}", part.text or "-")
        else:
            losses.add_unknown(f"{path}[].{part.type}", part.text or "-", part.model_dump())
