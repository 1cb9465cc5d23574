"""Environments of other programs' packages, each in a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def install_python(place: Path, packages: Sequence[object], python: str = sys.executable) -> None:
    """Make a virtual environment with packages, or options, of pip's."""
    uv = [sys.executable, "-m", "uv"]
    run(*uv, "venv", "--quiet", "--no-python-downloads", "--python", python, "--allow-existing", place)
    run(*uv, "pip", "install", "--quiet", "--python", place / "bin" / "python", *packages)


def install_node(place: Path, packages: Sequence[str]) -> None:
    """Install packages of npm."""
    run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", place, *packages)


def run(*command: object, folder: Path | None = None) -> None:
    """Run a command; raise CalledProcessError if it fails."""
    subprocess.run([str(part) for part in command], check=True, cwd=folder)
