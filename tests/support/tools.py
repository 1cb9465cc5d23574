"""Programs that tests start and pip does not bring."""

from __future__ import annotations

import shutil

import pytest


def tool(name: str) -> str:
    """A program's path; where there is none, the test fails and says how to get it."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed; `make tools` installs it, or says how")
    return path
