"""Imports of packages that belong to an extra."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution, version
from typing import Final

from knowledgepulse_worker.errors import MissingExtraError

DISTRIBUTION: Final = "knowledgepulse-worker"


@contextmanager
def extra(name: str, reason: str = "") -> Iterator[None]:
    """Name the extra to install if an import fails.

    ::

        with extra("policy"):
            from scipy import stats

    Args:
        name: the name of the extra.
        reason: why the extra is needed, if that is not obvious.

    Raises:
        MissingExtraError: a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed; {how_to_install(name)}"
        raise MissingExtraError(f"{reason}; {missing}" if reason else missing) from error


def require_worker(name: str = "worker") -> None:
    """Check that the packages of a worker are installed, before a broker is waited for.

    Raises:
        MissingExtraError: they are not; names the extra that brings them.
    """
    with extra(name):
        version("faust-streaming")


def how_to_install(name: str) -> str:
    """Return the command that installs an extra, for a checkout or for an installed wheel.

    In a checkout, it installs the tested versions. Pip notes where a package came from (PEP 610).
    """
    origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    if "dir_info" in origin:
        return f"in a checkout, this installs it: pip install -c constraints.txt '.[{name}]'"
    return f"this installs it: pip install '{DISTRIBUTION}[{name}]'"
