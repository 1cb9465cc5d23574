"""The work and the arguments shared by the loops that the worker is compared with.

Each reads, validates as we do, writes the score and publishes with the record's key; once a second it commits
what the broker has confirmed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from knowledgepulse_worker.records.decode import decode_trace, with_quality_score

COMMIT_INTERVAL = 1.0
"""Seconds."""

MAX_BYTES = 2**20

SESSION = 80
"""Seconds that a loop may be suspended without being declared dead."""


@dataclass(frozen=True)
class Task:
    """The broker, the topics and the group."""

    servers: str
    source: str
    target: str

    @property
    def group(self) -> str:
        return f"{self.target}-group"


def parse_task() -> Task:
    """Parse the task from the command line."""
    return Task(*sys.argv[1:])


def scored(value: bytes) -> bytes:
    """Validate a trace and write a score into it."""
    decode_trace(value, MAX_BYTES)
    return with_quality_score(value, 0.5)
