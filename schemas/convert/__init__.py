"""Traces from what agents already leave behind: messages, spans, exports, trajectories.

::

    from schemas.convert import from_openai

    trace = from_openai(messages).trace

Each ``from_…`` takes one document of its source as plain JSON, and :func:`convert` takes any. The rules are
the same for all of them; README.md beside this file has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.convert.errors import ConversionError
from schemas.convert.hub import Labels
from schemas.convert.losses import Loss, Losses
from schemas.convert.sources import AUTO, SOURCES, Source, convert, source_of
from schemas.convert.trace import Conversion, Options

__all__ = [
    "AUTO",
    "SOURCES",
    "Conversion",
    "ConversionError",
    "Labels",
    "Loss",
    "Losses",
    "Options",
    "Source",
    "convert",
    "from_anthropic",
    "from_atif",
    "from_langchain",
    "from_langfuse",
    "from_langsmith",
    "from_openai",
    "from_openai_agents",
    "from_openhands",
    "from_otlp",
    "from_phoenix",
    "from_swe_agent",
    "from_tau_bench",
    "source_of",
]


def _one(source: str, what: str) -> Callable[..., Conversion]:
    def from_source(document: Any, options: Options | None = None) -> Conversion:
        conversions = _all(document, source, options)
        if len(conversions) != 1:
            raise ConversionError(f"{len(conversions)} runs; schemas.convert.convert yields each of them")
        return conversions[0]

    from_source.__doc__ = f"""Return the trace of {what}.

    Raises:
        ConversionError: it is something else, or no trace can be made of it.
    """
    return from_source


def _many(source: str, what: str) -> Callable[..., list[Conversion]]:
    def from_source(document: Any, options: Options | None = None) -> list[Conversion]:
        return _all(document, source, options)

    from_source.__doc__ = f"""Return the trace of each run in {what}.

    Raises:
        ConversionError: it is something else, or no trace can be made of one of its runs;
            :func:`convert` goes on after such a run.
    """
    return from_source


def _all(document: Any, source: str, options: Options | None) -> list[Conversion]:
    conversions = []
    for conversion in convert(document, source, options):
        if isinstance(conversion, ConversionError):
            raise conversion
        conversions.append(conversion)
    return conversions


from_openai = _one("openai", "chat messages, of Responses items, or of a record that holds them")
from_anthropic = _one("anthropic", "messages of the Messages API, or of a record that holds them")
from_langchain = _one("langchain", "serialised LangChain messages, or of a LangGraph state")
from_openai_agents = _many("openai_agents", "what a trace processor of the OpenAI Agents SDK exports")
from_otlp = _many("otlp", "spans in OTLP's JSON; GenAI's and OpenInference's conventions are read")
from_phoenix = _many("phoenix", "spans as Phoenix exports them")
from_langsmith = _many("langsmith", "exported LangSmith runs")
from_langfuse = _many("langfuse", "exported Langfuse traces with their observations")
from_swe_agent = _one("swe_agent", "a SWE-agent trajectory")
from_tau_bench = _many("tau_bench", "a file of tau-bench's or tau2-bench's results")
from_openhands = _one("openhands", "an OpenHands conversation's events, or of an evaluation's output")
from_atif = _one("atif", "an ATIF trajectory")
