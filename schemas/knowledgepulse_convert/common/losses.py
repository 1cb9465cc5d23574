"""The loss report: values of the input that have no place in the trace."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
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


_NAMES = ("name", "toolName", "tool_name", "toolCallName")
_ARGUMENTS = frozenset({"arguments", "args", "toolKwargs", "tool_kwargs"})
"""Members of a call, in any vendor's form."""
_ID = re.compile("(?:tool_?)?(?:call|use)_?id", re.IGNORECASE)
"""The name of the member that tells which call a result is of."""
_RESULTS = frozenset({"content", "output", "response", "result"})
"""Members of a result."""
_TELLING = _ARGUMENTS | _RESULTS
_QUOTED = ("args", "arguments", "allid", "allId", "all_id", "all_Id", "seid", "seId", "se_id", "se_Id")
"""What a JSON text has that may hold one of them."""


class Losses(dict[str, Loss]):
    """Dropped values by path, without list indexes: ``messages[].content[].image_url``."""

    def __init__(self) -> None:
        super().__init__()
        self._dropped: dict[str, set[tuple[str, ...]]] = {}  # what names the calls, by path

    def add(self, path: str, value: Any, *, is_known: bool = False) -> None:
        """Count a dropped value, unless it is None or empty.

        ``is_known``: the calls and results in it are no part of the run, such as those of an earlier one.
        """
        if not value and (value is None or isinstance(value, str | list | dict)):
            return
        if (loss := self.get(path)) is None:
            loss = self[path] = Loss()
        loss.values += 1
        if isinstance(value, str) and value[0] not in "[{":  # nearly always
            loss.characters += len(value)
        elif isinstance(value, str | list | dict):
            loss.suspect = loss.suspect or (not isinstance(value, str) and _names_calls(path))
            dropped: set[tuple[str, ...]] = set()
            loss.characters += _look_through(value, dropped)
            if dropped and not is_known:
                self._dropped.setdefault(path, set()).update(dropped)

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
            if (own := self.get(path)) is None:
                own = self[path] = Loss()
            own.values += loss.values
            own.characters += loss.characters
            own.suspect = own.suspect or loss.suspect
        for path, dropped in other._dropped.items():
            self._dropped.setdefault(path, set()).update(dropped)

    def suspect_calls(self, is_told: Callable[[str], bool]) -> None:
        """Suspect the values with a call of a tool, or with a result, that no step tells.

        ``is_told``: returns whether a step tells the tool of a name, or the call with an id.
        """
        for path, dropped in self._dropped.items():
            if path in self and not all(any(map(is_told, names)) for names in dropped):
                self[path].suspect = True


def _look_through(value: Any, calls: set[tuple[str, ...]]) -> int:
    """Return the number of characters of text in a JSON value, and add what names its calls and results.

    They may be at any depth, and in texts that are JSON.
    """
    characters = 0
    rest = [value]  # a loop, as a deeply nested value would exceed the recursion limit
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            characters += len(value)
            if value[:1] in "[{ \n" and any(map(value.__contains__, _QUOTED)):
                try:
                    _look_through(json.loads(value), calls)
                except (ValueError, RecursionError):
                    continue
        elif isinstance(value, dict):
            rest.extend(value.values())
            if not _TELLING.isdisjoint(value) and (told := _call_in(value)):
                calls.add(told)
        elif isinstance(value, list):
            rest.extend(value)
    return characters


def _call_in(value: dict[str, Any]) -> tuple[str, ...]:
    """Return the name of the tool and the id of the call in a call or a result; nothing of anything else."""
    names = [name for name in map(value.get, _NAMES) if isinstance(name, str)]
    ids = [member for name, member in value.items() if _ID.fullmatch(name) and isinstance(member, str)]
    is_call = names and any(isinstance(value.get(name), dict | str) for name in _ARGUMENTS)
    is_result = ids and not _RESULTS.isdisjoint(value)
    if is_call and isinstance(call_id := value.get("id"), str):
        ids.append(call_id)
    return (*names, *ids) if is_call or is_result else ()


@lru_cache(1000)
def _names_calls(path: str) -> bool:
    """Check whether the last name of a path is that of calls or their results, in any spelling."""
    name = path.rpartition(".")[2].replace("_", "").removesuffix("[]").lower()
    return _CALLS.fullmatch(name) is not None


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
