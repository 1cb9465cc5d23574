"""Programs that tests run but that pip does not install."""

from __future__ import annotations

import shutil

import pytest


def tool(name: str) -> str:
    """Return a program's path; fail the test with instructions if it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed; `make tools` installs it, or says how")
    return path
