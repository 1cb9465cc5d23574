"""Converters to traces from chat messages, spans, exports and trajectories.

::

    from knowledgepulse_schemas.convert import from_openai

    trace = from_openai(messages).trace

Each ``from_…`` takes one document of its format as plain JSON; :func:`convert` takes any of them. The same
rules apply to all formats; see docs/producers/convert.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from knowledgepulse_schemas.convert.errors import ConversionError, NoRunError
from knowledgepulse_schemas.convert.hub import RunOutcome
from knowledgepulse_schemas.convert.input_format import InputFormat
from knowledgepulse_schemas.convert.input_formats import (
    AUTO,
    INPUT_FORMATS,
    convert,
    input_format_of,
    unread_kind,
)
from knowledgepulse_schemas.convert.losses import Loss, Losses
from knowledgepulse_schemas.convert.trace import Conversion, Options

__all__ = [
    "AUTO",
    "INPUT_FORMATS",
    "Conversion",
    "ConversionError",
    "InputFormat",
    "Loss",
    "Losses",
    "NoRunError",
    "Options",
    "RunOutcome",
    "convert",
    "from_anthropic",
    "from_atif",
    "from_claude_code",
    "from_codex",
    "from_gemini_cli",
    "from_langchain",
    "from_langfuse",
    "from_langsmith",
    "from_mini_swe_agent",
    "from_openai",
    "from_openai_agents",
    "from_opencode",
    "from_openhands",
    "from_otlp",
    "from_phoenix",
    "from_swe_agent",
    "from_tau_bench",
    "input_format_of",
    "unread_kind",
]


def _one(format_name: str, what: str) -> Callable[..., Conversion]:
    def from_format(document: Any, options: Options | None = None) -> Conversion:
        conversions = _all(document, format_name, options)
        if len(conversions) != 1:
            raise ConversionError(
                f"{len(conversions)} runs instead of one; use knowledgepulse_schemas.convert.convert"
            )
        return conversions[0]

    from_format.__doc__ = f"Convert {what} to a trace; raise a ConversionError if that fails."
    return from_format


def _many(format_name: str, what: str) -> Callable[..., list[Conversion]]:
    def from_format(document: Any, options: Options | None = None) -> list[Conversion]:
        return _all(document, format_name, options)

    from_format.__doc__ = f"Convert each run in {what} to a trace; raise a ConversionError if one fails."
    return from_format


def _all(document: Any, format_name: str, options: Options | None) -> list[Conversion]:
    conversions = []
    for conversion in convert(document, format_name, options):
        if isinstance(conversion, ConversionError):
            raise conversion
        conversions.append(conversion)
    return conversions


from_openai = _one("openai", "chat messages, Responses items, or a record that contains them")
from_anthropic = _one("anthropic", "Messages API messages, or a record that contains them")
from_langchain = _one("langchain", "serialised LangChain messages or a LangGraph state")
from_openai_agents = _many("openai_agents", "an OpenAI Agents SDK export of traces and spans")
from_otlp = _many("otlp", "OTLP JSON spans that follow the GenAI or OpenInference conventions")
from_phoenix = _many("phoenix", "spans exported from Phoenix")
from_langsmith = _many("langsmith", "exported LangSmith runs")
from_langfuse = _many("langfuse", "exported Langfuse traces with their observations")
from_swe_agent = _one("swe_agent", "a SWE-agent trajectory")
from_mini_swe_agent = _one("mini_swe_agent", "a mini-swe-agent trajectory")
from_tau_bench = _many("tau_bench", "a tau-bench or tau2-bench results file")
from_openhands = _one("openhands", "the events of an OpenHands conversation, or an evaluation's output")
from_atif = _one("atif", "an ATIF trajectory")
from_claude_code = _many("claude_code", "the lines of a Claude Code session, the subagents' after its own")
from_codex = _one("codex", "the lines of a Codex session")
from_gemini_cli = _one("gemini_cli", "a Gemini CLI session or its lines")
from_opencode = _many("opencode", "an OpenCode export, or the objects of its storage,")
