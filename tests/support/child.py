"""A worker whose child runs in a module of the tests' own, which changes something about it."""

from __future__ import annotations

from collections.abc import Sequence

import worker.supervise
from worker.settings import Settings


def start_child_in(module: str) -> None:
    """Have this process' parents of workers start a module's child instead of the real one's."""

    class Supervisor(worker.supervise.Supervisor):
        def __init__(self, settings: Settings, command: Sequence[str]) -> None:
            super().__init__(settings, [module if part == "worker.cli" else part for part in command])

    worker.supervise.Supervisor = Supervisor  # type: ignore[misc]
