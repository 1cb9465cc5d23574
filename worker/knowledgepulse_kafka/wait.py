"""What a client waits for."""

from __future__ import annotations

from dataclasses import dataclass

CONNECTION = "connection"
"""Stands for the request of a wait that is for a connection."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a client waits for.

    Attributes:
        request: the request's name, or :data:`CONNECTION`.
        place: the partition or the broker.
        error: the broker's last error, with its code; empty if there was no answer.
        problem: describes what happened instead of an answer; empty if there was an error.
    """

    request: str
    place: str
    error: str = ""
    problem: str = ""

    def __str__(self) -> str:
        where = f"{self.request} to {self.place}" if self.place else self.request
        return f"{where}: {self.error or self.problem}"
