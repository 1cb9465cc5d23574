"""The loss report: values of the input that have no place in the trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_CONTENT = {
    *("arguments", "command", "content", "contents", "input", "message", "messages", "output", "parts"),
    *("prompt", "query", "response", "result", "text", "thinking", "toolCalls", "tool_calls"),
}
"""Names of members that hold a request, a call, a response or an answer in some format."""


@dataclass(slots=True)
class Loss:
    """Dropped values.

    Attributes:
        values: Number of the values.
        characters: Number of the characters of text in them.
        suspect: Whether the reader did not know what a value is, and it may be a part of the conversation.
    """

    values: int = 0
    characters: int = 0
    suspect: bool = False


class Losses(dict[str, Loss]):
    """Dropped values by path, without list indexes: ``messages[].content[].image_url``."""

    def add(self, path: str, value: Any) -> None:
        """Count a dropped value, unless it is None or empty."""
        if value is None or value in ("", [], {}):
            return
        loss = self.setdefault(path, Loss())
        loss.values += 1
        loss.characters += _characters(value)

    def add_unknown(self, path: str, value: Any, whole: Any = None) -> None:
        """Count a dropped value of a kind that the reader does not know.

        Formats grow: the content of a new kind of line, event or part is missing from the trace. The loss is
        suspect if the value has content, or the ``whole`` of which it is a part; the commands warn of it.
        """
        self.add(path, value)
        if path in self and _has_content([value, whole]):
            self[path].suspect = True

    def merge(self, other: Losses) -> None:
        """Add the counts of another report."""
        for path, loss in other.items():
            own = self.setdefault(path, Loss())
            own.values += loss.values
            own.characters += loss.characters
            own.suspect = own.suspect or loss.suspect


def _characters(value: Any) -> int:
    """Return the number of characters of text in a JSON value."""
    total = 0
    rest = [value]  # a loop, as a deeply nested value would exceed the recursion limit
    while rest:
        value_part = rest.pop()
        if isinstance(value_part, str):
            total += len(value_part)
        elif isinstance(value_part, dict):
            rest.extend(value_part.values())
        elif isinstance(value_part, list):
            rest.extend(value_part)
    return total


def _has_content(value: Any) -> bool:
    """Check a JSON value for text in a member that holds content, at any depth."""
    rest = [(value, False)]
    while rest:
        value_part, is_content = rest.pop()
        if isinstance(value_part, str):
            if value_part and is_content:
                return True
        elif isinstance(value_part, dict):
            rest.extend(
                (member, is_content or name in _CONTENT or not _CONTENT.isdisjoint(name.split("_")))
                for name, member in value_part.items()
            )
        elif isinstance(value_part, list):
            rest.extend((inner, is_content) for inner in value_part)
    return False
