"""The table of the backends, from what they say of themselves."""

from __future__ import annotations

from generator import markdown
from knowledgepulse_worker.tools.backends.all_backends import BACKENDS
from knowledgepulse_worker.tools.backends.backend_options import variables_in_words


def table() -> str:
    """Return a row for each backend."""
    rows = []
    for name, kind in BACKENDS.items():
        words, keys = kind.words, variables_in_words(kind.variables)
        project = "; ".join(filter(None, [words.project, words.project_note])) or "project"
        service = f", at `{words.url}`" if words.url else ""
        rows.append(
            f"| `{name}` | [{words.title}]({words.page}){service} | {project} | {keys} | {words.score} |"
        )
    return markdown.table("| backend | is | `--project` | key | score |", rows)
