"""Converters to traces from chat messages, spans, exports and trajectories.

::

    from knowledgepulse_convert import from_openai

    trace = from_openai(messages).trace

Each ``from_…`` takes one document of its format as plain JSON; :func:`convert` takes any of them. The same
rules apply to all formats; see docs/producers/convert.md.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common.errors import ConversionError, NoRunError, UnreadError
from knowledgepulse_convert.common.input_format import InputFormat
from knowledgepulse_convert.common.ir import RunOutcome
from knowledgepulse_convert.common.losses import Loss, Losses
from knowledgepulse_convert.common.rewards import Reward
from knowledgepulse_convert.common.trace import Conversion, Options
from knowledgepulse_convert.conversion import AUTO, convert
from knowledgepulse_convert.input_formats import INPUT_FORMATS, input_format_of
from knowledgepulse_convert.unread import unknown_format, unread_kind

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
    "Reward",
    "RunOutcome",
    "UnreadError",
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
    "unknown_format",
    "unread_kind",
]


def from_openai(document: Any, options: Options | None = None) -> Conversion:
    """Convert chat messages, Responses items, or a record that contains them, to a trace.

    Raises:
        ConversionError: it cannot be converted, or is not one run.
    """
    return _one(document, "openai", options)


def from_anthropic(document: Any, options: Options | None = None) -> Conversion:
    """Convert Messages API messages, or a record that contains them, to a trace.

    Raises:
        ConversionError: it cannot be converted, or is not one run.
    """
    return _one(document, "anthropic", options)


def from_langchain(document: Any, options: Options | None = None) -> Conversion:
    """Convert serialised LangChain messages or a LangGraph state to a trace.

    Raises:
        ConversionError: it cannot be converted, or is not one run.
    """
    return _one(document, "langchain", options)


def from_openai_agents(document: Any, options: Options | None = None) -> list[Conversion]:
    """Convert each run in an OpenAI Agents SDK export of traces and spans to a trace.

    Raises:
        ConversionError: a run cannot be converted.
    """
    return _all(document, "openai_agents", options)


def from_otlp(document: Any, options: Options | None = None) -> list[Conversion]:
    """Convert each run in OTLP JSON spans that follow the GenAI or OpenInference conventions to a trace.

    Raises:
        ConversionError: a run cannot be converted.
    """
    return _all(document, "otlp", options)


def from_phoenix(document: Any, options: Options | None = None) -> list[Conversion]:
    """Convert each run in spans exported from Phoenix to a trace.

    Raises:
        ConversionError: a run cannot be converted.
    """
    return _all(document, "phoenix", options)


def from_langsmith(document: Any, options: Options | None = None) -> list[Conversion]:
    """Convert each run in exported LangSmith runs to a trace.

    Raises:
        ConversionError: a run cannot be converted.
    """
    return _all(document, "langsmith", options)


def from_langfuse(document: Any, options: Options | None = None) -> list[Conversion]:
    """Convert each run in exported Langfuse traces with their observations to a trace.

    Raises:
        ConversionError: a run cannot be converted.
    """
    return _all(document, "langfuse", options)


def from_swe_agent(document: Any, options: Options | None = None) -> Conversion:
    """Convert a SWE-agent trajectory to a trace.

    Raises:
        ConversionError: it cannot be converted, or is not one run.
    """
    return _one(document, "swe_agent", options)


def from_mini_swe_agent(document: Any, options: Options | None = None) -> Conversion:
    """Convert a mini-swe-agent trajectory to a trace.

    Raises:
        ConversionError: it cannot be converted, or is not one run.
    """
    return _one(document, "mini_swe_agent", options)


def from_tau_bench(document: Any, options: Options | None = None) -> list[Conversion]:
    """Convert each run in a tau-bench or tau2-bench results file to a trace.

    Raises:
        ConversionError: a run cannot be converted.
    """
    return _all(document, "tau_bench", options)


def from_openhands(document: Any, options: Options | None = None) -> Conversion:
    """Convert the events of an OpenHands conversation, or an evaluation's output to a trace.

    Raises:
        ConversionError: it cannot be converted, or is not one run.
    """
    return _one(document, "openhands", options)


def from_atif(document: Any, options: Options | None = None) -> Conversion:
    """Convert an ATIF trajectory to a trace.

    Raises:
        ConversionError: it cannot be converted, or is not one run.
    """
    return _one(document, "atif", options)


def from_claude_code(document: Any, options: Options | None = None) -> list[Conversion]:
    """Convert each run in the lines of a Claude Code session, the subagents' after its own, to a trace.

    Raises:
        ConversionError: a run cannot be converted.
    """
    return _all(document, "claude_code", options)


def from_codex(document: Any, options: Options | None = None) -> Conversion:
    """Convert the lines of a Codex session to a trace.

    Raises:
        ConversionError: it cannot be converted, or is not one run.
    """
    return _one(document, "codex", options)


def from_gemini_cli(document: Any, options: Options | None = None) -> Conversion:
    """Convert a Gemini CLI session or its lines to a trace.

    Raises:
        ConversionError: it cannot be converted, or is not one run.
    """
    return _one(document, "gemini_cli", options)


def from_opencode(document: Any, options: Options | None = None) -> list[Conversion]:
    """Convert each run in an OpenCode export, or the objects of its storage to a trace.

    Raises:
        ConversionError: a run cannot be converted.
    """
    return _all(document, "opencode", options)


def _one(document: Any, format_name: str, options: Options | None) -> Conversion:
    conversions = _all(document, format_name, options)
    if len(conversions) != 1:
        raise ConversionError(f"{len(conversions)} runs instead of one; use knowledgepulse_convert.convert")
    return conversions[0]


def _all(document: Any, format_name: str, options: Options | None) -> list[Conversion]:
    conversions = []
    for conversion in convert(document, format_name, options):
        if isinstance(conversion, ConversionError):
            raise conversion
        conversions.append(conversion)
    return conversions
