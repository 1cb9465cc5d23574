"""Run a worker's child from a test module that modifies it."""

from __future__ import annotations

from collections.abc import Sequence

import worker.process.supervisor
from worker.settings import Settings


def start_child_in(module: str) -> None:
    """Make supervisors in this process start a module's child instead of the real one."""

    class Supervisor(worker.process.supervisor.Supervisor):
        def __init__(self, settings: Settings, command: Sequence[str]) -> None:
            super().__init__(settings, [module if part == "worker.cli.entry" else part for part in command])

    worker.process.supervisor.Supervisor = Supervisor  # type: ignore[misc]
