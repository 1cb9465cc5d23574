"""The table of the backends, from what they say of themselves."""

from __future__ import annotations

from knowledgepulse_worker.tools.backends.all_backends import BACKENDS
from knowledgepulse_worker.tools.backends.backend import Backend
from knowledgepulse_worker.tools.backends.backend_options import variables_in_words


def table() -> str:
    """Return a row for each backend."""
    head = ("| backend | is | `--project` | key | score |", "|---|---|---|---|---|")
    return "\n".join((*head, *map(_row, BACKENDS.values())))


def _row(kind: type[Backend]) -> str:
    words = kind.words
    project = "; ".join(filter(None, [words.project, words.project_note])) or "project"
    service = f", at `{words.url}`" if words.url else ""
    keys = variables_in_words(kind.variables)
    return f"| `{kind.name}` | [{words.title}]({words.page}){service} | {project} | {keys} | {words.score} |"
