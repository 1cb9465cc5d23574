"""Documents that are not read: what is known of them, with the way in, or else the nearest format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from knowledgepulse_convert.common.errors import ConversionError, UnreadError
from knowledgepulse_convert.common.input_format import InputFormat
from knowledgepulse_convert.common.pattern import Conditions, Pattern, at
from knowledgepulse_convert.common.words import words
from knowledgepulse_convert.input_formats import INPUT_FORMATS

_NEAR = 0.5
"""Share of a format's members that a document needs before an error names the format."""
_COMMON = words(
    """
    content context data id input inputs message messages name output outputs parts role source steps
    timestamp type uuid
    """
)
"""Names of members that many formats use."""
_MEMBERS = {name: words(input_format.members) for name, input_format in INPUT_FORMATS.items()}
"""Names of members that are typical of each format."""
_OTHERS = 'of any other, convert the messages, {"messages": [{"role": …, "content": …, "tool_calls": …}, …]}'
_OF_CALLS = "convert the messages of its model calls, or their spans"


@dataclass(frozen=True, slots=True)
class Unread:
    """A kind of document that is known and not read.

    Attributes:
        name: What it is.
        where: What its first line has; one of several alternatives.
        way_in: What to convert instead.
        why: What ``name`` lacks.
    """

    name: str
    where: tuple[Conditions, ...]
    way_in: str = _OF_CALLS
    why: str = "are not read"

    def __str__(self) -> str:
        """Return the sentence that an error says."""
        return f"{self.name} {self.why}; {self.way_in}"


UNREAD = (
    Unread(
        "OpenTelemetry's metrics",
        ({"resourceMetrics": list}, {"resource_metrics": list}),
        "convert the agent's spans",
        why="hold no conversation",
    ),
    Unread(
        "Copilot's debug log in VS Code",
        ({"sid": str, "spanId": str, "attrs": dict},),
        "convert what `Chat: Export Chat…` writes",
        why="is not read",
    ),
    Unread(
        "the changes to a chat that VS Code keeps",
        ({"kind": int, "v": ...},),
        "convert what `Chat: Export Chat…` writes",
    ),
    Unread(
        "what Cline and Roo Code show on the screen",
        ({"ts": int, "type": {"say", "ask"}},),
        "convert the `api_conversation_history.json` beside it",
        why="is not read",
    ),
    Unread(
        "ToolBench's trees",
        ({at("answer_generation", "train_messages"): list},),
        "convert the last list of messages in `answer_generation.train_messages`",
    ),
    Unread(
        "Opik's traces without their spans",
        ({"name": str, "start_time": ..., "feedback_scores": ...},),
        "convert their spans, or the files of `opik export`",
    ),
    Unread(
        "Helicone's requests",
        ({"request_body": dict, "response_body": ...},),
        "name `request_body` `request`, and `response_body` `response`",
    ),
    Unread(
        "a batch's answers",
        ({"custom_id": str, "response": dict},),
        "convert each `body` as `response`, with its request's `messages`",
        why="hold no requests",
    ),
    Unread(
        "an answer",
        ({"object": "chat.completion"}, {"object": "response"}),
        "convert it with the `messages` or the `input` of its request",
        why="without its request",
    ),
    Unread(
        "Vibe's journals",
        ({"recovery_journal_record_version": int},),
        "convert what `vibe --prompt … --output streaming` prints",
    ),
    Unread(
        "Agno's sessions",
        ({"session_id": str, "runs": list},),
        "convert each of the `runs`, which has `messages`",
    ),
    Unread(
        "AgentBench's runs",
        ({at("output", "history"): list, "index": ...},),
        "convert `output.history`, with the role `assistant` for `agent`",
    ),
    Unread(
        "Trae Agent's trajectories",
        ({"llm_interactions": list, "agent_steps": list},),
        "convert `input_messages` and `response` of `llm_interactions`",
    ),
    Unread(
        "ADK's evaluation sets",
        ({"eval_cases": list}, {"expected_tool_use": list, "query": str}),
        "convert the sessions that it records",
        why="hold what is expected",
    ),
    Unread(
        "ChatGPT's conversations",
        ({"mapping": dict, "title": ...},),
        "convert the `message` of each node of `mapping`, as a list",
    ),
    Unread(
        "Claude's list of prompts",
        ({"display": str, "pastedContents": ...},),
        "convert the sessions in `~/.claude/projects`",
        why="holds no answers",
    ),
    Unread(
        "Codex' list of prompts",
        ({"session_id": str, "ts": int, "text": str},),
        "convert the sessions in `~/.codex/sessions`",
        why="holds no answers",
    ),
    Unread(
        "Gemini CLI's list of prompts",
        ({"sessionId": str, "messageId": int, "message": str},),
        "convert the sessions in `chats` beside it",
        why="holds no answers",
    ),
    Unread(
        "Letta's messages",
        (
            {"message_type": {"user_message", "assistant_message", "tool_call_message", "system_message"}},
            {"agents": list, "blocks": list},
        ),
    ),
    Unread("Crush's messages", ({"session_id": str, "role": str, "parts": list},)),
    Unread(
        "a conversation of Kiro's or Amazon Q's",
        ({"conversation_id": str, "history": list},),
        why="is not read",
    ),
    Unread("AgentScope's memory", ({at("agent", "memory", "content"): list},), why="is not read"),
    Unread("Zed's threads", ({"title": ..., "version": str, "messages": list, "updated_at": str},)),
    Unread(
        "the steps of smolagents",
        (
            {"task": str, "task_images": ...},
            {"step_number": int, "model_output": ...},
            {"intermediate_steps": list, "prediction": ...},
        ),
    ),
    Unread("a crew's output", ({"tasks_output": list},), why="holds no messages"),
    Unread("BFCL's results", ({"id": str, "inference_log": list},)),
)
"""All of them; the first that fits counts."""
_MARKED = [(Pattern(where), unread) for unread in UNREAD for where in unread.where]
"""Their alternatives."""


def unknown_format(document: Any) -> UnreadError:
    """Return an error that names the nearest format and says why the document does not have it.

    Names that many formats use, such as ``type``, count only if the document has all of a format's names.
    """
    if not document:
        return UnreadError("the document is empty")
    first = _first(document)
    if is_trace(first):
        return UnreadError("a trace already; `kp-worker publish` and `kp-worker score` take it as it is")
    if (unread := unread_kind(first)) is not None:
        return UnreadError(unread)
    members = first.keys() | _first(first.get("messages")).keys()
    near = max(INPUT_FORMATS.values(), key=lambda candidate: _share(_MEMBERS[candidate.name], members))
    if _share(_MEMBERS[near.name], members) < _NEAR:
        return UnreadError(f"unknown format; accepted are {', '.join(INPUT_FORMATS)}; {_OTHERS}")
    missing = ", ".join(sorted(_MEMBERS[near.name] - members))
    reason = f"no {missing}" if missing else _first_error(near, document)
    return UnreadError(f"unknown format; the nearest is {near.name}: {reason}; {_OTHERS}")


def is_trace(document: Any) -> bool:
    """Return whether a document is a trace, which needs no conversion."""
    return isinstance(document, dict) and document.get("@type") == "ReasoningTrace"


def unread_kind(line: Any) -> str | None:
    """Return what a file is that is known and not read, and the way in, by its first line; else None."""
    first = _first(line)
    return next((str(unread) for pattern, unread in _MARKED if pattern.fits(first)), None)


def _share(names: frozenset[str], members: set[str]) -> float:
    """Return the share of a format's members that a document has; none if it has only common ones."""
    is_telling = names <= members or not members.isdisjoint(names - _COMMON)
    return len(members & names) / len(names) if is_telling else 0.0


def _first(value: Any) -> dict[str, Any]:
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, dict) else {}


def _first_error(input_format: InputFormat, document: Any) -> ConversionError:
    try:
        errors = (run for run in input_format.runs(document) if isinstance(run, ConversionError))
        return next(errors, ConversionError("it has the same members, but in another form"))
    except ConversionError as error:
        return error
