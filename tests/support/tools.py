"""Programs that tests run but that pip does not install."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def tool(name: str) -> str:
    """Return a program's path; fail the test with instructions if it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed; `make tools` installs it, or says how")
    return path


def promtool(*arguments: object) -> None:
    """Run promtool; fail the test with what it says if it does."""
    command = [tool("promtool"), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
