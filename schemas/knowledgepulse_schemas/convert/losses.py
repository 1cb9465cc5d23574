"""The loss report: source values that a trace has no field for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Loss:
    """Number of dropped values, and of the characters of text in them."""

    values: int = 0
    characters: int = 0


class Losses(dict[str, Loss]):
    """Dropped values by path, without list indexes: ``messages[].content[].image_url``."""

    def add(self, path: str, value: Any) -> None:
        """Count a dropped value, unless it is None or empty."""
        if value is None or value in ("", [], {}):
            return
        loss = self.setdefault(path, Loss())
        loss.values += 1
        loss.characters += _characters(value)

    def merge(self, other: Losses) -> None:
        """Add the counts of another report."""
        for path, loss in other.items():
            own = self.setdefault(path, Loss())
            own.values += loss.values
            own.characters += loss.characters


def _characters(value: Any) -> int:
    """Return the number of characters of text in a JSON value."""
    total = 0
    rest = [value]  # a loop, as a deeply nested value would exceed the recursion limit
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            total += len(one)
        elif isinstance(one, dict):
            rest.extend(one.values())
        elif isinstance(one, list):
            rest.extend(one)
    return total
