"""All input formats, and the detection of a document's."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from knowledgepulse_convert.common.input_format import InputFormat, members_of
from knowledgepulse_convert.messages import any_vendor
from knowledgepulse_convert.sessions.table import Table
from knowledgepulse_convert.sessions.table_reader import format_of
from knowledgepulse_convert.spans import exports

_PROGRAMS = """
    spans.langsmith spans.braintrust spans.opik spans.weave spans.deepeval spans.langfuse spans.openai_agents
    spans.agent_lightning
    sessions.claude_code sessions.claude_stream sessions.cline sessions.codex sessions.codex_exec
    sessions.copilot_cli sessions.cursor_stream sessions.gemini_cli sessions.gemini_stream
    sessions.opencode sessions.opencode_run sessions.openclaw sessions.hermes sessions.pi
    sessions.cursor sessions.droid
    sessions.goose_lines sessions.droid_stream sessions.kimi sessions.claude_managed sessions.qwen_code
    sessions.grok sessions.antigravity sessions.gptme sessions.continue_cli sessions.vibe
    sessions.llama_index_ts sessions.eino_events sessions.agui sessions.agent_kit sessions.langchain4j
    sessions.autogen sessions.pydantic_ai sessions.agent_framework
    sessions.haystack sessions.goose sessions.amp sessions.sharegpt benchmarks.inspect_logs
    benchmarks.verifiers spans.art sessions.adk
    sessions.vscode_chat benchmarks.agentdojo sessions.browser_use benchmarks.atif sessions.openhands
    benchmarks.swe_agent benchmarks.mini_swe_agent benchmarks.tau_bench messages.langchain
"""
_VENDORS = """
    messages.agui messages.bedrock messages.anthropic messages.openai sessions.chat_lines
"""


def _in(modules: str) -> Iterator[InputFormat]:
    """Yield the formats of modules, which have a format or a table."""
    for module in modules.split():
        declared = import_module(f"knowledgepulse_convert.{module}").FORMAT
        yield format_of(declared) if isinstance(declared, Table) else declared


INPUT_FORMATS = {
    input_format.name: input_format
    for input_format in (*exports.FORMATS, *_in(_PROGRAMS), *any_vendor.FORMATS, *_in(_VENDORS))
}
"""Every format by name. The most specific come first: later ones would also recognise their documents."""


def input_format_of(document: Any) -> InputFormat | None:
    """Detect a document's format; None if no format recognises it, such as an empty one."""
    if not document:
        return None
    members = members_of(document)
    candidates = (each for each in INPUT_FORMATS.values() if each.may_fit(members))
    return next((each for each in candidates if each.fits(document)), None)
