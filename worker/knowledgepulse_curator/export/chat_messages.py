"""A trace as OpenAI's chat messages with tools, and as an ATIF trajectory.

Each call gets its result: the observation with its id, or else with its tool, or else the next one. A result
that came after other steps moves up to its call, because chat formats require it there. What the assistant
says in a row, such as a thought and then the answer, is one turn, because templates require the roles to
alternate: the last text is said, and those before it are its reasoning.

Sources: https://platform.openai.com/docs/guides/fine-tuning, also for the weights, and the types of
``openai``;
https://www.harborframework.com/docs/agents/trajectory-format and the types of ``atif``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from knowledgepulse_curator.export.manifest import Arguments
from knowledgepulse_worker.scoring.counts import names_failure


class _Tool(msgspec.Struct, frozen=True):
    name: str
    mcp_server: str | None = None

    @property
    def full_name(self) -> str:
        """The name that agents use for the tools of MCP servers."""
        return f"mcp__{self.mcp_server}__{self.name}" if self.mcp_server else self.name


class _Step(msgspec.Struct, frozen=True):
    type: str
    content: str | None = None
    tool: _Tool | None = None
    input: dict[str, Any] | None = None
    output_summary: str | None = None
    tool_call_id: Any = None


class _Task(msgspec.Struct, frozen=True):
    objective: str
    system: Any = None
    tools: Any = None


class Conversation(msgspec.Struct, frozen=True):
    """The members of a trace that messages need."""

    task: _Task
    steps: list[_Step]


@dataclass(slots=True)
class Turn:
    """A turn of the system, the user or the assistant.

    Attributes:
        role: the speaker.
        text: the text.
        reasoning: what the assistant wrote before the text; empty if there is nothing.
        calls: the simultaneous tool calls, in ATIF's form.
        results: the results of the calls by id, unless the trace lacks them.
    """

    role: str
    text: str
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)


class _Turns(list[Turn]):
    def __init__(self, conversation: Conversation) -> None:
        task = conversation.task
        super().__init__([Turn("system", task.system)] if isinstance(task.system, str) else [])
        self.append(Turn("user", task.objective))
        self._open: list[tuple[_Step, Turn, str]] = []
        self._ids: set[str] = set()
        answered = True
        for number, step in enumerate(conversation.steps):
            if step.type == "observation":
                answered = self._observe(step) or answered
            elif step.tool is not None:
                self._call(number, step, step.tool, parallel=not answered)
                answered = False
            else:
                self._say(step.content or "")
                answered = True

    def _say(self, text: str) -> Turn:
        """Return the turn of the assistant with this text: the last one, if it has no calls."""
        last = self[-1]
        if last.role != "assistant" or last.calls:
            last = Turn("assistant", text)
            self.append(last)
        elif text.strip():
            last.reasoning = "\n\n".join(filter(None, (last.reasoning, last.text)))
            last.text = text
        return last

    def _call(self, number: int, step: _Step, tool: _Tool, *, parallel: bool) -> None:
        last = self[-1]
        if step.content or last.role != "assistant" or (last.calls and not parallel):
            last = self._say(step.content or "")
        given = step.tool_call_id
        name = given if isinstance(given, str) and given else f"call_{number}"
        while name in self._ids:  # some agents number the calls of each turn
            name = f"{name}_{number}"
        self._ids.add(name)
        last.calls.append(
            {"tool_call_id": name, "function_name": tool.full_name, "arguments": step.input or {}}
        )
        if step.output_summary is not None:
            last.results[name] = step.output_summary
        self._open.append((step, last, name))

    def _observe(self, step: _Step) -> bool:
        """Assign an observation to its call, or else to the user; return whether it had a call."""
        text = step.content if step.content is not None else step.output_summary or ""
        for opened in self._open:
            call, turn, name = opened
            if step.tool_call_id is not None:
                answers = call.tool_call_id == step.tool_call_id
            else:
                answers = turn is self[-1] if step.tool is None else call.tool == step.tool
            if answers:
                self._open.remove(opened)
                turn.results[name] = text
                return True
        self.append(Turn("user", text))
        return False


def turns_of(conversation: Conversation) -> list[Turn]:
    """Return the turns: the system's if its text was kept, then the objective, then the steps."""
    return _Turns(conversation)


def reasons_of(turns: Sequence[Turn]) -> Iterator[str]:
    """Yield why a model should not learn to take each turn; an empty text if nothing speaks against it.

    ``failed``: the result of one of its calls names a failure. ``repeated``: one of its calls repeats an
    earlier one, and has the same result as the last time.
    """
    known: dict[tuple[str, str], str] = {}
    for turn in turns:
        reasons = set()
        for call in turn.calls:
            result = turn.results.get(call["tool_call_id"])
            if result is None:
                continue
            key = call["function_name"], json.dumps(call["arguments"], sort_keys=True)
            if names_failure(result):
                reasons.add("failed")
            elif known.get(key) == result:
                reasons.add("repeated")
            known[key] = result
        yield min(reasons, default="")


def chat_of(
    trace_id: str, conversation: Conversation, *, weights: bool = False, arguments: Arguments = "text"
) -> dict[str, Any]:
    """Return a line of fine-tuning data: id, messages, and the tools that were called or defined.

    A call without a result in the trace gets an empty one, because the format requires a result for all calls
    except those of the last turn.

    Args:
        trace_id: the trace's id.
        conversation: its members.
        weights: whether each message of the assistant has a ``weight``: 0 if there is a reason not to learn
            it, or else 1. The reasons are then in ``reasons``, a text for each message; see
            :func:`reasons_of`.
        arguments: the form of the calls' arguments: their JSON as text, as in OpenAI's format, or an object,
            as most chat templates expect.
    """
    messages: list[dict[str, Any]] = []
    reasons: list[str] = []
    turns = turns_of(conversation)
    for turn, reason in zip(turns, reasons_of(turns), strict=True):
        message: dict[str, Any] = {"role": turn.role, "content": turn.text}
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if weights and turn.role == "assistant":
            message["weight"] = 0 if reason else 1
        if turn.calls:
            message["tool_calls"] = [_chat_call(**call, form=arguments) for call in turn.calls]
        messages.append(message)
        if turn.results or turn is not turns[-1]:
            names = [call["tool_call_id"] for call in turn.calls]
            messages += [
                {"role": "tool", "tool_call_id": name, "content": turn.results.get(name, "")}
                for name in names
            ]
        reasons += [reason, *[""] * (len(messages) - len(reasons) - 1)]
    line: dict[str, Any] = {"id": trace_id, "messages": messages}
    if weights:
        line["reasons"] = reasons
    if tools := _tools(conversation):
        line["tools"] = tools
    return line


def _chat_call(
    tool_call_id: str, function_name: str, arguments: dict[str, Any], form: Arguments
) -> dict[str, Any]:
    given = arguments if form == "object" else json.dumps(arguments, ensure_ascii=False)
    function = {"name": function_name, "arguments": given}
    return {"id": tool_call_id, "type": "function", "function": function}


def without_tail(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of :func:`chat_of` that ends with the assistant's last message.

    Nothing after it can be learnt, and trainers refuse or drop lines that end otherwise. Without a message of
    the assistant, the line has no messages.
    """
    roles = [message["role"] for message in line["messages"]]
    end = len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0
    return line | {name: line[name][:end] for name in ("messages", "reasons") if name in line}


def _tools(conversation: Conversation) -> list[dict[str, Any]]:
    """Return the tools that were defined or called; a tool without a known schema accepts any arguments."""
    kept = conversation.task.tools if isinstance(conversation.task.tools, list) else []
    schemas = {
        tool["name"]: tool for tool in kept if isinstance(tool, dict) and isinstance(tool.get("name"), str)
    }
    for step in conversation.steps:
        if step.tool is not None and step.type != "observation":
            schemas.setdefault(step.tool.full_name, {})
    tools = []
    for name, tool in schemas.items():
        schema = tool.get("parameters")
        parameters = schema if isinstance(schema, dict) else {"type": "object", "properties": {}}
        function = {"name": name, "description": str(tool.get("description") or ""), "parameters": parameters}
        tools.append({"type": "function", "function": function})
    return tools


def trajectory_of(trace_id: str, agent: str, conversation: Conversation) -> dict[str, Any]:
    """Return the trace as an ATIF trajectory."""
    steps = []
    for number, turn in enumerate(turns_of(conversation), start=1):
        source = "agent" if turn.role == "assistant" else turn.role
        step: dict[str, Any] = {"step_id": number, "source": source, "message": turn.text}
        if turn.reasoning:
            step["reasoning_content"] = turn.reasoning
        if turn.calls:
            step["tool_calls"] = turn.calls
        if turn.results:
            results = [{"source_call_id": name, "content": text} for name, text in turn.results.items()]
            step["observation"] = {"results": results}
        steps.append(step)
    return {
        "schema_version": "ATIF-v1.4",
        "session_id": trace_id,
        "agent": {"name": agent, "version": "unknown"},
        "steps": steps,
    }
