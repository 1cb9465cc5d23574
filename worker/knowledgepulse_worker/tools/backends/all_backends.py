"""The backends by name, and how to connect to each.

A backend is a module in :mod:`~knowledgepulse_worker.tools.backends.kinds`. Choices, `--help` and the pages
follow from what its class says of itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from knowledgepulse_worker.tools.backends import kinds
from knowledgepulse_worker.tools.backends.backend import Backend
from knowledgepulse_worker.tools.backends.backend_client import (
    MAX_ANSWER,
    BackendClient,
    backend_key,
    wait,
)
from knowledgepulse_worker.tools.common.retries import WaitFunction

_MODULES = [import_module(f"{kinds.__name__}.{found.name}") for found in iter_modules(kinds.__path__)]

BACKENDS: dict[str, type[Backend]] = {module.BACKEND.name: module.BACKEND for module in _MODULES}
"""The backends by the name that they have on the command line."""


@asynccontextmanager
async def connected(
    name: str,
    url: str,
    project: str,
    key_file: Path | None = None,
    *,
    patience: float | None = 120.0,
    max_bytes: int = MAX_ANSWER,
    wait: WaitFunction = wait,
) -> AsyncIterator[Backend]:
    """Connect to a backend.

    Args:
        name: one of :data:`BACKENDS`.
        url: its address.
        project: the project, or MLflow's experiment.
        key_file: the file with its key, or with user and password, joined by a colon; the default is the
            environment.
        patience: seconds for which a request is repeated; None for no limit.
        max_bytes: the largest answer that is read.
        wait: waits before a request is repeated.

    Raises:
        InputError: the address is none, the file cannot be read, or the key has characters that HTTP headers
            do not allow.
    """
    kind = BACKENDS[name]
    key = backend_key(kind.variables, key_file)
    title, headers = kind.words.title, kind.headers(key)
    async with BackendClient(
        url, title, headers, [key], patience=patience, max_bytes=max_bytes, wait=wait
    ) as client:
        yield kind(client, project)
