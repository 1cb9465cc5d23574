"""The public Python API: a table of its names, and for the site, mkdocstrings' directives."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

PUBLIC: dict[str, tuple[str, ...] | None] = {
    "knowledgepulse_worker": None,
    "knowledgepulse_worker.scoring": (
        "Dimensions",
        "Nearest",
        "complexity",
        "embedding_text",
        "novelty",
        "outcome_confidence",
        "quality_score",
        "rescore",
        "score_trace",
        "tool_diversity",
    ),
    "knowledgepulse_worker.otel": None,
    "knowledgepulse_schemas": None,
    "knowledgepulse_convert": None,
}
"""The public names of each module; None stands for its ``__all__``."""

ROLE = re.compile(r":\w+:`~?([^`]+)`")
"""A role of Sphinx, such as ``:class:`Scorer```."""


def page() -> str:
    """Return a table for each module: its names, and the first sentence on each."""
    return "\n".join(line for module in PUBLIC for line in _table(module))


def directives() -> str:
    """Return what mkdocstrings replaces by signatures, docstrings and fields."""
    return "\n".join(
        f"\n## `{module}`\n\n" + "\n\n".join(f"::: {module}.{name}" for name in names_of(module)) + "\n"
        for module in PUBLIC
    )


def names_of(module: str) -> list[str]:
    """Return the public names of a module."""
    return [name for name in PUBLIC[module] or import_module(module).__all__ if name != "__version__"]


def _table(module: str) -> Iterator[str]:
    yield f"\n## `{module}`\n\n| name | |\n|---|---|"
    for name in names_of(module):
        yield f"| `{name}` | {_summary(getattr(import_module(module), name))} |"
    yield ""


def _summary(value: Any) -> str:
    """Return the first sentence of a docstring, as Markdown."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return f"`{value!r}`" if isinstance(value, str) else ""
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()).replace("``", "`")
    return ROLE.sub(r"`\1`", paragraph).replace("|", "\\|")
