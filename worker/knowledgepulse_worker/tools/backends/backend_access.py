"""Ask a backend once whether its runs can be read."""

from __future__ import annotations

from pathlib import Path

from knowledgepulse_kafka.errors import SecurityError
from knowledgepulse_worker.tools.backends.all_backends import BACKENDS, connected
from knowledgepulse_worker.tools.backends.backend_options import variables_in_words
from knowledgepulse_worker.tools.backends.read_runs import listed_runs


async def require_access(name: str, url: str, project: str, key_file: Path | None) -> str:
    """Check that a backend answers, takes the key and has the project; return its address.

    Args:
        name: its name on the command line.
        url: its address.
        project: the project, or MLflow's experiment.
        key_file: the file with its key; the default is the environment.

    Raises:
        InputError: it does not answer, or has no such project.
        SecurityError: it refuses the key.
    """
    async with connected(name, url, project, key_file, patience=0.0) as backend:
        try:
            await anext(listed_runs(backend, None), None)
        except SecurityError as error:
            place = variables_in_words(BACKENDS[name].variables)
            raise SecurityError(f"{error}; the key is read from --key-file, or else from {place}") from error
        return backend.url
