"""Which sources there are, how a document's source is told, and what converts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from schemas.convert import (
    anthropic,
    atif,
    langchain,
    langfuse,
    langsmith,
    openai,
    openai_agents,
    openhands,
    spans,
    swe_agent,
    tau_bench,
)
from schemas.convert.errors import ConversionError
from schemas.convert.hub import Run
from schemas.convert.trace import Conversion, Options, to_trace

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Source:
    """A format that is read.

    Attributes:
        name: what it is called on the command line.
        recognises: tells whether a document is in it.
        runs: yields the runs of a document; a run that cannot be read is an error in its place.
        gathers: tells whether a line of a file is part of a document, as spans of one trace may stand on
            several lines, and not a document of its own.
    """

    name: str
    recognises: Callable[[Any], bool]
    runs: Callable[[Any], Iterator[Run | ConversionError]]
    gathers: Callable[[Any], bool] = lambda line: False


def _spans(name: str) -> Source:
    return Source(
        name,
        lambda document: spans.source_of(document) == name,
        partial(spans.runs, source=name),
        gathers=lambda line: True,
    )


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        _spans(spans.OTLP),
        _spans(spans.TEMPO),
        _spans(spans.JAEGER),
        _spans(spans.PHOENIX),
        Source(atif.NAME, atif.recognises, atif.runs),
        Source(openhands.NAME, openhands.recognises, openhands.runs, openhands.gathers),
        Source(swe_agent.NAME, swe_agent.recognises, swe_agent.runs),
        Source(tau_bench.NAME, tau_bench.recognises, tau_bench.runs),
        Source(langsmith.NAME, langsmith.recognises, langsmith.runs, lambda line: True),
        Source(langfuse.NAME, langfuse.recognises, langfuse.runs, langfuse.is_observation),
        Source(openai_agents.NAME, openai_agents.recognises, openai_agents.runs, lambda line: True),
        Source(langchain.NAME, langchain.recognises, langchain.runs),
        Source(anthropic.NAME, anthropic.recognises, anthropic.runs),
        Source(openai.NAME, openai.recognises, openai.runs),
    )
}
"""Every source by its name, those first whose documents others would take for theirs."""


def source_of(document: Any) -> Source | None:
    """Return the source whose format a document is in, if it is in one."""
    return next((source for source in SOURCES.values() if source.recognises(document)), None)


def convert(
    document: Any, source: str = AUTO, options: Options | None = None
) -> Iterator[Conversion | ConversionError]:
    """Yield the trace of each run in a document, or the error that says why there is none.

    Args:
        document: plain JSON: objects, lists, strings, numbers, booleans, None.
        source: the name of its format, or ``auto`` to tell it from the content.
        options: what the source cannot know.
    """
    try:
        found = source_of(document) if source == AUTO else SOURCES[source]
        if found is None:
            yield ConversionError(f"no format that is known; accepted are {', '.join(SOURCES)}")
            return
        none = True
        for run in found.runs(document):
            none = False
            yield _converted(run, options)
        if none:
            yield ConversionError(f"no run of an agent in what is taken for {found.name}")
    except ConversionError as error:
        yield error
    except RecursionError:
        yield ConversionError("nested too deeply")


def _converted(run: Run | ConversionError, options: Options | None) -> Conversion | ConversionError:
    if isinstance(run, ConversionError):
        return run
    try:
        return to_trace(run, options)
    except ConversionError as error:
        return error if run.native_id is None else ConversionError(f"{run.native_id}: {error}")
