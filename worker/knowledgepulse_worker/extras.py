"""Imports of packages that belong to an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from knowledgepulse_worker.errors import MissingExtraError


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
        install = install_command(name)
        missing = f"{error.name} is not installed; in a checkout, this installs the extra with it: {install}"
        raise MissingExtraError(f"{reason}; {missing}" if reason else missing) from error


def install_command(name: str) -> str:
    """Return the command that installs an extra in a checkout, at the tested versions."""
    return f"pip install -c constraints.txt '.[{name}]'"
