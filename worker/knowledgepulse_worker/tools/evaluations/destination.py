"""Where ``kp-worker evaluations`` writes scores instead of to a topic."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Destination(NamedTuple):
    """A backend's name, its address, the project, and the file with its key."""

    name: str
    url: str
    project: str
    key_file: Path | None = None
