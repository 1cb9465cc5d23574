"""Scores reasoning traces from Kafka and routes them by quality.

These names are for programs; all other modules are internal. Each is imported when it is first used, so that
a program pays only for what it takes.

Score as a worker with the same settings does::

    from pathlib import Path

    from knowledgepulse_schemas import ReasoningTrace
    from knowledgepulse_worker import load_embedder, load_settings, make_scorer

    settings = load_settings(Path("worker.toml"))
    scorer = make_scorer(settings, load_embedder(settings.embedding, settings.cache))
    score = scorer.evaluate(ReasoningTrace.model_validate_json(line))
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "Policy": "policy",
    "Score": "scoring",
    "Scorer": "scoring",
    "TracePublisher": "tools.publish.trace_publisher",
    "VectorCache": "scoring",
    "load_embedder": "embedding",
    "load_settings": "settings",
    "make_scorer": "tools.score.offline",
    "record": "tools.publish.recording",
    "score_traces": "tools.score.scores",
}

__all__ = [  # noqa: PLE0604 - the names of the table, which the stub file spells out
    *_MODULES,
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name == "__version__":  # of the installed package, whose metadata take a third of `--help` to read
        return import_module("importlib.metadata").version("knowledgepulse-worker")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
