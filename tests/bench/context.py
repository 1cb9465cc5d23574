"""The context of a section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 8
ROUNDS_SHORT = 3


@dataclass(frozen=True)
class Context:
    """State shared by all sections of a run.

    Attributes:
        short: whether to run the short form.
        folder: temporary folder for logs and files of processes.
        servers: the broker's address; empty if no section needs a broker.
        bfloat16: whether the CPU has instructions for bfloat16.
        say: called with a message for each step.
    """

    short: bool
    folder: Path
    servers: str
    bfloat16: bool
    say: Callable[[str], None]

    @property
    def rounds(self) -> int:
        """Number of rounds of a comparison."""
        return ROUNDS_SHORT if self.short else ROUNDS
