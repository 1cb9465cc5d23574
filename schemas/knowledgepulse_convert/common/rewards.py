"""The numbers that graders give, each in its own scale."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Inspect's grades: correct, partially correct, incorrect, no answer."""
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


@dataclass(frozen=True, slots=True)
class Reward:
    """The number that a grader gave a run, finite, in the grader's own scale.

    Attributes:
        name: The grader's name.
        weight: Its weight in the run's total, if the source tells it.
        low, high: The ends of its scale, if the source tells them.
    """

    name: str
    value: float
    weight: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> bool | None:
        """Whether the run is right: only the best is. None on an unknown scale, or without any weight."""
        best = 1.0 if self.high is None else self.high
        return None if self.weight == 0 or self.value > best else self.value == best


def number_of(value: Any) -> float | None:
    """Return the number of a score; None for NaN, an infinity, and a text that has none.

    As Inspect's ``value_to_float`` with its defaults, but that function gives 0 where it finds no number.
    """
    if isinstance(value, str):
        value = _GRADES.get(value, _WORDS.get(value.lower(), value))
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isfinite(number) else None
