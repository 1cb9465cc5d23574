"""Imports of packages that belong to an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from worker.errors import MissingExtraError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Name the extra to install if an import fails.

    ::

        with extra("policy"):
            from scipy import stats

    Raises:
        MissingExtraError: a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        install = f"pip install 'knowledgepulse-worker[{name}]'"
        raise MissingExtraError(
            f"{error.name} is not installed; the extra {name!r} provides it: {install}"
        ) from error
