"""The loss report: what of a source had no place in a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Loss:
    """How many values had no place, and how many characters of text they held."""

    values: int = 0
    characters: int = 0


class Losses(dict[str, Loss]):
    """What had no place, by where it stood: ``messages[].content[].image_url``, indexes left out."""

    def add(self, path: str, value: Any) -> None:
        """Count a value that is dropped; None and what is empty are no loss."""
        if value is None or value in ("", [], {}):
            return
        loss = self.setdefault(path, Loss())
        loss.values += 1
        loss.characters += _characters(value)

    def merge(self, other: Losses) -> None:
        """Add what another report counts."""
        for path, loss in other.items():
            own = self.setdefault(path, Loss())
            own.values += loss.values
            own.characters += loss.characters


def _characters(value: Any) -> int:
    """Return how much text a JSON value holds; a loop, so that its depth does not matter."""
    total = 0
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            total += len(one)
        elif isinstance(one, dict):
            rest.extend(one.values())
        elif isinstance(one, list):
            rest.extend(one)
    return total
