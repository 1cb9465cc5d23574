"""The conversion of a hook, in the test's own process, where a child would take most of the test's time."""

from __future__ import annotations

from rich.progress import Progress

from knowledgepulse_worker.tools.convert.convert_command import converted


def converted_here(files, format_name, report, options):
    """Return what :func:`~knowledgepulse_worker.tools.convert.apart.converted_apart` does."""
    with Progress(disable=True) as progress:
        return list(converted(files, format_name, report, progress, options))
