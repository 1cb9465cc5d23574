"""The options of commands that use a backend, and what their help says about all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import click

from knowledgepulse_worker.tools.backends.all_backends import BACKENDS
from knowledgepulse_worker.tools.backends.backend_client import MAX_ANSWER
from knowledgepulse_worker.tools.terminal.arguments import EXISTING
from knowledgepulse_worker.tools.terminal.options import Function, with_options

_ALL = [kind.words for kind in BACKENDS.values()]
_PROJECTS = "".join(f", or {words.title}'s {words.project}" for words in _ALL if words.project)
_KEYS = ", ".join(f"for {words.title} {words.key}" for words in _ALL if words.key)


def variables_in_words(alternatives: Iterable[Iterable[str]]) -> str:
    """Return a backend's variables: `A` and `B` or else `C`."""
    return " or else ".join(" and ".join(f"`{name}`" for name in names) for names in alternatives)


def _alternatives(phrases: Iterable[str], last: str) -> str:
    """Return phrases as a sentence lists them, with the word before the last one."""
    return last.join(", ".join(phrases).rsplit(", ", 1))


BACKEND_NAMES = _alternatives(BACKENDS, " or ")
"""The names of the backends in a sentence."""

KEY_VARIABLES = _alternatives((variables_in_words(kind.variables) for kind in BACKENDS.values()), ", or ")
"""The variables with the backends' keys in a sentence."""


class Destination(NamedTuple):
    """A backend's name and address, the project, and the file with its key."""

    name: str
    url: str
    project: str
    key_file: Path | None = None


def to_option(told: str) -> Callable[[Function], Function]:
    """Return the option that names a backend and its address."""
    return click.option(
        "--to",
        type=(click.Choice([*BACKENDS]), str),
        metavar="BACKEND URL",
        help=f"{told} ({BACKEND_NAMES}).",
    )


backend_options = with_options(
    click.option("--project", default="default", help=f"The backend's project{_PROJECTS}."),
    click.option(
        "--key-file",
        type=EXISTING,
        help=f"File with the backend's key: {_KEYS}. The default are the variables that the backend's own "
        "client reads.",
    ),
)

page_option = click.option(
    "--max-page",
    metavar="MIB",
    type=click.IntRange(1, 1024),
    default=MAX_ANSWER // 2**20,
    help="Largest page of the backend's runs that is read, in MiB after decompression.",
)
