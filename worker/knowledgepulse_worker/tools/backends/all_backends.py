"""The backends by name, and how to connect to each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from knowledgepulse_worker.tools.backends.backend import Backend
from knowledgepulse_worker.tools.backends.backend_client import (
    BackendClient,
    WaitFunction,
    backend_key,
    basic,
    basic_or_bearer,
    bearer_header,
    wait,
)
from knowledgepulse_worker.tools.backends.langfuse import Langfuse
from knowledgepulse_worker.tools.backends.langsmith import LangSmith
from knowledgepulse_worker.tools.backends.mlflow import MLflow
from knowledgepulse_worker.tools.backends.phoenix import Phoenix

_KINDS: dict[
    str, tuple[type[Phoenix | MLflow | Langfuse | LangSmith], Callable[[str | None], dict[str, str]]]
] = {
    "phoenix": (Phoenix, bearer_header),
    "mlflow": (MLflow, basic_or_bearer),
    "langfuse": (Langfuse, basic),
    "langsmith": (LangSmith, lambda key: {} if key is None else {"x-api-key": key}),
}

BACKENDS = tuple(_KINDS)


@asynccontextmanager
async def connected(
    name: str,
    url: str,
    project: str,
    key_file: Path | None = None,
    *,
    patience: float | None = 120.0,
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
        wait: waits before a request is repeated.

    Raises:
        InputError: the address is none, the file cannot be read, or the key has characters that HTTP headers
            do not allow.
    """
    kind, headers = _KINDS[name]
    key = backend_key(kind.variables, key_file)
    async with BackendClient(url, headers(key), [key], patience=patience, wait=wait) as client:
        yield kind(client, project)
