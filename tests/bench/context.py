"""What a section is handed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 8
ROUNDS_SHORT = 3


@dataclass(frozen=True)
class Context:
    """What all sections of a run share.

    Attributes:
        short: the form that takes minutes.
        folder: for logs and what processes need; it is gone afterwards.
        servers: the broker's; empty where no section needs one.
        bfloat16: the CPU has instructions for it.
        say: told of each step.
    """

    short: bool
    folder: Path
    servers: str
    bfloat16: bool
    say: Callable[[str], None]

    @property
    def rounds(self) -> int:
        """How often the sides of a comparison take turns."""
        return ROUNDS_SHORT if self.short else ROUNDS
