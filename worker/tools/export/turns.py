"""A trace as the turns of a conversation, which chat messages and trajectories have in common.

Each call gets its results, by id, by tool, or else as the next observation; a result that came after other
steps moves up to its call, as chat formats demand it there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec


class _Tool(msgspec.Struct, frozen=True):
    name: str
    mcp_server: str | None = None

    @property
    def full_name(self) -> str:
        """As agents name the tools of MCP servers."""
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
    """What turns need of a trace."""

    task: _Task
    steps: list[_Step]

    @property
    def system(self) -> str | None:
        """The system text, if it was kept."""
        return self.task.system if isinstance(self.task.system, str) else None

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The definitions of the tools that were kept, and of others that were called, their names."""
        kept = self.task.tools if isinstance(self.task.tools, list) else []
        found = {
            one["name"]: one for one in kept if isinstance(one, dict) and isinstance(one.get("name"), str)
        }
        for step in self.steps:
            if step.tool is not None and step.type != "observation":
                found.setdefault(step.tool.full_name, {"name": step.tool.full_name})
        return list(found.values())


@dataclass(slots=True)
class Call:
    """A tool call; ``result`` is None if the trace has none."""

    id: str
    name: str
    arguments: dict[str, Any]
    result: str | None = None

    @property
    def json(self) -> str:
        """The arguments as JSON."""
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(slots=True)
class Turn:
    """What the user or the assistant said, and the calls that the assistant made at once."""

    role: str
    text: str | None
    calls: list[Call] = field(default_factory=list)


def turns_of(conversation: Conversation) -> list[Turn]:
    """Return the turns after the system's; the first is the objective."""
    return list(_Turns(conversation))


class _Turns:
    def __init__(self, conversation: Conversation) -> None:
        self._turns = [Turn("user", conversation.task.objective)]
        self._open: list[tuple[_Step, Call]] = []
        self._ids: set[str] = set()
        answered = True
        for number, step in enumerate(conversation.steps):
            if step.type == "observation":
                answered = self._observe(step) or answered
            elif step.tool is not None:
                self._call(number, step, step.tool, parallel=not answered)
                answered = False
            else:
                self._turns.append(Turn("assistant", step.content or ""))
                answered = True

    def __iter__(self) -> Iterator[Turn]:
        return iter(self._turns)

    def _call(self, number: int, step: _Step, tool: _Tool, *, parallel: bool) -> None:
        last = self._turns[-1]
        joins = last.role == "assistant" and (parallel if last.calls else True)
        if not joins or step.content:
            last = Turn("assistant", step.content or None)
            self._turns.append(last)
        name = (
            step.tool_call_id
            if isinstance(step.tool_call_id, str) and step.tool_call_id
            else f"call_{number}"
        )
        while name in self._ids:  # some agents number the calls of each turn
            name = f"{name}_{number}"
        self._ids.add(name)
        call = Call(name, tool.full_name, step.input or {}, step.output_summary)
        last.calls.append(call)
        self._open.append((step, call))

    def _observe(self, step: _Step) -> bool:
        """Give an observation to its call, or else to the user; return whether it had one."""
        text = step.content if step.content is not None else step.output_summary or ""
        call = self._answered_by(step)
        if call is None:
            self._turns.append(Turn("user", text))
            return False
        call.result = text
        return True

    def _answered_by(self, step: _Step) -> Call | None:
        pending = list(self._open)
        if step.tool_call_id is not None:
            pending = [one for one in pending if one[0].tool_call_id == step.tool_call_id]
        elif step.tool is not None:
            pending = [one for one in pending if one[0].tool == step.tool]
        else:
            pending = [one for one in pending if one[1] in self._turns[-1].calls]
        if not pending:
            return None
        self._open.remove(pending[0])
        return pending[0][1]
