"""All input formats: detect a document's format and convert it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from knowledgepulse_schemas.convert.benchmarks import (
    agentdojo,
    atif,
    inspect_logs,
    mini_swe_agent,
    swe_agent,
    tau_bench,
)
from knowledgepulse_schemas.convert.common import hub
from knowledgepulse_schemas.convert.common.errors import ConversionError, NoRunError
from knowledgepulse_schemas.convert.common.input_format import InputFormat
from knowledgepulse_schemas.convert.common.losses import Losses
from knowledgepulse_schemas.convert.common.session_log import requests_of
from knowledgepulse_schemas.convert.common.trace import Conversion, Options, to_trace
from knowledgepulse_schemas.convert.common.words import words
from knowledgepulse_schemas.convert.messages import anthropic, bedrock, gemini, langchain, openai, vercel
from knowledgepulse_schemas.convert.messages.any_vendor import messages_of
from knowledgepulse_schemas.convert.sessions import (
    adk,
    agent_framework,
    amp,
    antigravity,
    autogen,
    browser_use,
    chat_lines,
    claude_code,
    claude_managed,
    claude_stream,
    cline,
    codex,
    codex_exec,
    copilot_cli,
    cursor,
    cursor_stream,
    droid,
    droid_stream,
    gemini_cli,
    gemini_stream,
    goose,
    goose_lines,
    grok,
    haystack,
    kimi,
    opencode,
    opencode_run,
    openhands,
    pi,
    pydantic_ai,
    qwen_code,
    sharegpt,
    vscode_chat,
)
from knowledgepulse_schemas.convert.sessions.table import fits
from knowledgepulse_schemas.convert.spans import exports, langfuse, langsmith, openai_agents

AUTO = "auto"

_NEAR = 0.5
"""Share of a format's members that a document needs before an error names the format."""
_COMMON = words(
    """
    content context data id input inputs message messages name output outputs parts role source steps
    timestamp type uuid
    """
)
"""Names of members that many formats use."""


_OTHERS = 'of any other, convert the messages, {"messages": [{"role": …, "content": …, "tool_calls": …}, …]}'
_OF_CALLS = "convert the messages of its model calls, or their spans"
_UNREAD: dict[str, tuple[dict[str, Any], ...]] = {
    "OpenTelemetry's log records are not read without messages of spans; convert the agent's session, or its "
    "spans": ({"resourceLogs": list}, {"resource_logs": list}),
    "OpenTelemetry's metrics hold no conversation; convert the agent's spans": (
        {"resourceMetrics": list},
        {"resource_metrics": list},
    ),
    "Copilot's debug log in VS Code is not read; convert what `Chat: Export Chat…` writes": (
        {"sid": str, "spanId": str, "attrs": dict},
    ),
    "the changes to a chat that VS Code keeps are not read; convert what `Chat: Export Chat…` writes": (
        {"kind": int, "v": ...},
    ),
    "what Cline and Roo Code show on the screen is not read; convert the `api_conversation_history.json` "
    "beside it": ({"ts": int, "type": {"say", "ask"}},),
    "ToolBench's trees are not read; convert the last list of messages in "
    "`answer_generation.train_messages`": ({"answer_generation.train_messages": list},),
    "Opik's spans and traces are not read; convert the messages in their `input` and `output`, or the spans "
    "of an OpenTelemetry instrumentation": (
        {"trace_id": str, "start_time": ..., "project_name": str},
        {"trace_id": str, "start_time": ..., "type": {"llm", "general", "tool", "guardrail"}},
        {"name": str, "start_time": ..., "feedback_scores": ...},
    ),
    "Weave's calls are not read; convert the messages in their `inputs` and `output`, or spans of the run": (
        {"op_name": str, "inputs": dict},
    ),
    "Helicone's requests are not read; name `request_body` `request`, and `response_body` `response`": (
        {"request_body": dict, "response_body": ...},
    ),
    "a batch's answers hold no requests; convert each `body` as `response`, with its request's `messages`": (
        {"custom_id": str, "response": dict},
    ),
    "an answer without its request; convert it with the `messages` or the `input` of its request": (
        {"object": "chat.completion"},
        {"object": "response"},
    ),
    "Continue's sessions are not read; convert the `message` of each item of `history`, as a list": (
        {"sessionId": str, "history": list},
    ),
    "Agno's sessions are not read; convert each of the `runs`, which has `messages`": (
        {"session_id": str, "runs": list},
    ),
    "AgentBench's runs are not read; convert `output.history`, with the role `assistant` for `agent`": (
        {"output.history": list, "index": ...},
    ),
    "Trae Agent's trajectories are not read; convert `input_messages` and `response` of `llm_interactions`": (
        {"llm_interactions": list, "agent_steps": list},
    ),
    "ADK's evaluation sets hold what is expected; convert the sessions that it records": (
        {"eval_cases": list},
        {"expected_tool_use": list, "query": str},
    ),
    "OpenClaw's trajectories are not read; convert the session in `agents/*/sessions`": (
        {"traceSchema": "openclaw-trajectory"},
    ),
    "ChatGPT's conversations are not read; convert the `message` of each node of `mapping`, as a list": (
        {"mapping": dict, "title": ...},
    ),
    "Claude's list of prompts holds no answers; convert the sessions in `~/.claude/projects`": (
        {"display": str, "pastedContents": ...},
    ),
    "Codex' list of prompts holds no answers; convert the sessions in `~/.codex/sessions`": (
        {"session_id": str, "ts": int, "text": str},
    ),
    "Gemini CLI's list of prompts holds no answers; convert the sessions in `chats` beside it": (
        {"sessionId": str, "messageId": int, "message": str},
    ),
    f"Letta's messages are not read; {_OF_CALLS}": (
        {"message_type": {"user_message", "assistant_message", "tool_call_message", "system_message"}},
        {"agents": list, "blocks": list},
    ),
    f"Crush's messages are not read; {_OF_CALLS}": ({"session_id": str, "role": str, "parts": list},),
    f"a conversation of Kiro's or Amazon Q's is not read; {_OF_CALLS}": (
        {"conversation_id": str, "history": list},
    ),
    f"AgentScope's memory is not read; {_OF_CALLS}": ({"agent.memory.content": list},),
    f"Zed's threads are not read; {_OF_CALLS}": (
        {"title": ..., "version": str, "messages": list, "updated_at": str},
    ),
    f"the steps of smolagents are not read; {_OF_CALLS}": (
        {"task": str, "task_images": ...},
        {"step_number": int, "model_output": ...},
        {"intermediate_steps": list, "prediction": ...},
    ),
    f"a crew's output holds no messages; {_OF_CALLS}": ({"tasks_output": list},),
    f"BFCL's results are not read; {_OF_CALLS}": ({"id": str, "inference_log": list},),
}
"""What is known and not read, with the way in, and what one of its lines has, as in ``table.Line.where``."""


_MARKED = [
    (next(iter(where)).partition(".")[0], where, told) for told, wheres in _UNREAD.items() for where in wheres
]
"""The same, each with the name of the first member, since most lines have none of them."""


def _chat(name: str, members: str, recognises: Callable[[Any], bool]) -> InputFormat:
    """Return a format of a vendor's messages, which are read like the messages of a tracer."""

    def runs(document: Any) -> Iterator[hub.Run]:
        losses = Losses()
        yield hub.Run(name, list(messages_of(document, "user", "messages", losses)), losses=losses)

    return InputFormat(name, members, recognises, runs)


INPUT_FORMATS: dict[str, InputFormat] = {
    input_format.name: input_format
    for input_format in (
        *exports.FORMATS,
        claude_code.FORMAT,
        claude_stream.FORMAT,
        cline.FORMAT,
        codex.FORMAT,
        codex_exec.FORMAT,
        copilot_cli.FORMAT,
        cursor_stream.FORMAT,
        gemini_cli.FORMAT,
        gemini_stream.FORMAT,
        opencode.FORMAT,
        opencode_run.FORMAT,
        pi.FORMAT,
        cursor.FORMAT,
        droid.FORMAT,
        goose_lines.FORMAT,
        droid_stream.FORMAT,
        kimi.FORMAT,
        claude_managed.FORMAT,
        qwen_code.FORMAT,
        grok.FORMAT,
        antigravity.FORMAT,
        autogen.FORMAT,
        pydantic_ai.FORMAT,
        agent_framework.FORMAT,
        haystack.FORMAT,
        goose.FORMAT,
        amp.FORMAT,
        sharegpt.FORMAT,
        inspect_logs.FORMAT,
        adk.FORMAT,
        vscode_chat.FORMAT,
        agentdojo.FORMAT,
        browser_use.FORMAT,
        atif.FORMAT,
        openhands.FORMAT,
        swe_agent.FORMAT,
        mini_swe_agent.FORMAT,
        tau_bench.FORMAT,
        langsmith.FORMAT,
        langfuse.FORMAT,
        openai_agents.FORMAT,
        langchain.FORMAT,
        _chat("vercel", "toolCallId toolName", vercel.recognises_all),
        _chat("gemini", "role parts", gemini.recognises_all),
        bedrock.FORMAT,
        anthropic.FORMAT,
        openai.FORMAT,
        chat_lines.FORMAT,
    )
}
"""Every format by name. The most specific come first: later ones would also recognise their documents."""
_MEMBERS = {name: words(input_format.members) for name, input_format in INPUT_FORMATS.items()}
"""Names of members that are typical of each format."""


def input_format_of(document: Any) -> InputFormat | None:
    """Detect a document's format; None if no format recognises it."""
    return next(
        (input_format for input_format in INPUT_FORMATS.values() if input_format.fits(document)), None
    )


def unknown_format(document: Any) -> ConversionError:
    """Return an error that names the nearest format and says why the document does not have it.

    A trace needs no conversion.

    Names that many formats use, such as ``type``, count only if the document has all of a format's names.
    """
    first = _first(document)
    if first.get("@type") == "ReasoningTrace":
        return ConversionError("a trace already; `kp-worker publish` and `kp-worker score` take it as it is")
    if (unread := unread_kind(first)) is not None:
        return ConversionError(unread)
    members = first.keys() | _first(first.get("messages")).keys()
    shares = {
        name: len(members & names) / len(names)
        for name, names in _MEMBERS.items()
        if names <= members or not members.isdisjoint(names - _COMMON)
    }
    name = max(shares, key=lambda candidate: shares[candidate], default=None)
    if name is None or shares[name] < _NEAR:
        return ConversionError(f"unknown format; accepted are {', '.join(INPUT_FORMATS)}; {_OTHERS}")
    near = INPUT_FORMATS[name]
    missing = ", ".join(sorted(_MEMBERS[name] - members))
    reason = f"no {missing}" if missing else _first_error(near, document)
    return ConversionError(f"unknown format; the nearest is {near.name}: {reason}; {_OTHERS}")


def convert(
    document: Any, format_name: str = AUTO, options: Options | None = None
) -> Iterator[Conversion | ConversionError]:
    """Convert each run in a document; yield an error in place of a run that cannot be converted.

    Args:
        document: plain JSON: objects, lists, strings, numbers, booleans, None.
        format_name: the name of its format, or ``auto`` to detect it.
        options: values that the document cannot provide.
    """
    try:
        found = input_format_of(document) if format_name == AUTO else INPUT_FORMATS[format_name]
        if found is None:
            yield unknown_format(document)
            return
        empty = True
        for run in found.runs(document):
            empty = False
            if isinstance(run, ConversionError):
                yield run
                continue
            for request in requests_of(run) if options and options.per_request else [run]:
                yield _convert_run(request, options)
        if empty:
            yield NoRunError(f"no agent run in the document, which was read as {found.name}")
    except ConversionError as error:
        yield error
    except RecursionError:
        yield ConversionError("nested too deeply")
    except Exception as error:  # noqa: BLE001 - a defect here costs one document, not the ones after it
        yield ConversionError(f"the converter failed: {error!r}")


def unread_kind(line: Any) -> str | None:
    """Return what a file is that is known and not read, and the way in, by its first line; else None."""
    first = _first(line)
    return next((told for name, where, told in _MARKED if name in first and fits(first, where)), None)


def _first(value: Any) -> dict[str, Any]:
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, dict) else {}


def _first_error(input_format: InputFormat, document: Any) -> ConversionError:
    try:
        errors = (run for run in input_format.runs(document) if isinstance(run, ConversionError))
        return next(errors, ConversionError("it has the same members, but in another form"))
    except ConversionError as error:
        return error


def _convert_run(run: hub.Run, options: Options | None) -> Conversion | ConversionError:
    try:
        return to_trace(run, options)
    except ConversionError as error:
        return error if run.native_id is None else ConversionError(f"{run.native_id}: {error}")
