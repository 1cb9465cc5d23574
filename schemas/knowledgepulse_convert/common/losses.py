"""The loss report: values of the input that have no place in the trace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_CONTENT = {
    *("arguments", "command", "content", "contents", "input", "message", "messages", "output", "parts"),
    *("prompt", "query", "response", "result", "text", "thinking", "toolCalls", "tool_calls"),
}
"""Names of members that hold a request, a call, a response or an answer in some format."""


_CALLS = re.compile("(?:tool|function)(?:calls?|uses?|invocations?|results?|responses?|outputs?)(?:states?)?")
"""Names of members that hold calls or results, in lower case and without underscores."""
_IDS = {"id", "ids"}
"""Words at the end of names that hold no content, whatever the words before."""


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
        loss.suspect = loss.suspect or (isinstance(value, dict | list) and _names_calls(path))
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


def _names_calls(path: str) -> bool:
    """Check whether the last name of a path is that of calls or their results, in any spelling."""
    name = path.rpartition(".")[2].replace("_", "").removesuffix("[]").lower()
    return _CALLS.fullmatch(name) is not None


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


def _is_content(name: str) -> bool:
    *_, last = words = name.split("_")
    return name in _CONTENT or (last not in _IDS and not _CONTENT.isdisjoint(words))


def _has_content(value: Any) -> bool:
    """Check a JSON value for text in a member that holds content, at any depth."""
    rest = [(value, False)]
    while rest:
        value_part, is_content = rest.pop()
        if isinstance(value_part, str):
            if value_part and is_content:
                return True
        elif isinstance(value_part, dict):
            rest.extend((member, is_content or _is_content(name)) for name, member in value_part.items())
        elif isinstance(value_part, list):
            rest.extend((inner, is_content) for inner in value_part)
    return False
