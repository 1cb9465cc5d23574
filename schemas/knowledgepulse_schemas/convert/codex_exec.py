"""What ``codex exec --json`` prints: a thread's events, one per line.

The stream has the agent's items and no prompt. A call is an item that starts on one line and is completed on
a later one, which tells the call again.

Source: https://github.com/openai/codex, ``codex-rs/exec/src/exec_events.rs``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.blocks import parts_of
from knowledgepulse_schemas.convert.input_format import of_lines
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import InputModel, count_unread
from knowledgepulse_schemas.convert.sessions import Reader, event_of

NAME = "codex_exec"

_EVENTS = ("thread.started", "turn.", "item.")
_STATES = {"item.started", "item.updated", "item.completed"}
_ENDINGS = {"turn.started": False, "turn.completed": True}
_FAILED = {"failed", "declined"}
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "command_execution": ("command",),
    "file_change": ("changes",),
    "web_search": ("query", "action"),
    "mcp_tool_call": (),
    "collab_tool_call": ("prompt",),
}
"""The members of each type of call that are its arguments; none if they are in one of their own."""


class _Failure(InputModel):
    message: str | None = None


class _Result(InputModel):
    content: Any = None
    structured_content: Any = None


class _Item(InputModel):
    type: str
    id: str | None = None
    status: str | None = None
    text: str | None = None
    message: str | None = None
    # a command
    command: Any = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    # a change of files, a plan, a search
    changes: list[Any] | None = None
    items: list[Any] | None = None
    query: str | None = None
    action: Any = None
    # a call of an MCP server, or of another agent
    server: str | None = None
    tool: str | None = None
    arguments: Any = None
    prompt: str | None = None
    result: _Result | None = None
    error: _Failure | None = None


class _Event(InputModel):
    type: str
    thread_id: str | None = None
    item: _Item | None = None
    error: _Failure | None = None
    message: str | None = None


def _recognises(line: dict[str, Any]) -> bool:
    if not str(line.get("type")).startswith(_EVENTS):
        return False
    return line == {"type": "turn.started"} or bool({"thread_id", "item", "usage", "error"} & set(line))


class _Stream(Reader):
    has_ended = False

    def __init__(self, framework: str) -> None:
        super().__init__(framework)
        self._started: set[str] = set()  # ids of the calls that are not completed
        self._plan: Any = None

    def add(self, value: dict[str, Any]) -> None:
        """Add an event."""
        if (event := event_of(_Event, value, self.losses)) is None:
            return
        count_unread(event, event.type, self.losses)
        if event.type == "thread.started":
            self.transcript.began(event.thread_id)
        elif event.type in _STATES and event.item is not None:
            self._add_item(event.type, event.item)
        elif event.type == "turn.failed":
            self.has_ended = True
            self.transcript.add("assistant", [hub.Error((event.error and event.error.message) or "")])
        else:
            self.has_ended = _ENDINGS.get(event.type, self.has_ended)
            self.losses.add(event.type, event.message)

    def _add_item(self, state: str, item: _Item) -> None:
        match item.type:
            case "reasoning":
                self._add_text(state, hub.Reasoning(item.text or ""))
            case "agent_message":
                self._add_text(state, hub.Text(item.text or ""))
            case "error":  # a notice of Codex; a failure is the turn's
                self.losses.add("items of type error", item.message)
            case "todo_list":
                if item.items and item.items != self._plan:
                    self._plan = item.items
                    self.transcript.add("assistant", [hub.ToolCall(item.type, {"items": item.items})])
            case _ if (call := _call(item)) is not None:
                self._add_call(state, item, call)
            case _:
                content = [item.text, item.message, item.model_extra]
                self.losses.add_unknown(f"items of type {item.type}", content)

    def _add_text(self, state: str, part: hub.Part) -> None:
        if state == "item.completed":
            self.transcript.add("assistant", [part])

    def _add_call(self, state: str, item: _Item, call: hub.ToolCall) -> None:
        if call.id in self._started:
            self.transcript.tell_again(call.id, call.arguments)
        elif call.id is not None or state == "item.completed":
            self._started.update([call.id] if call.id else [])
            self.transcript.add("assistant", [call])
        if state == "item.completed":
            self._started.discard(call.id or "")
            self.transcript.add("tool", _responses(item, call, self.losses))


def _call(item: _Item) -> hub.ToolCall | None:
    """Return the call that an item is; None if it is none."""
    if item.type not in _ARGUMENTS:
        return None
    members = {name: getattr(item, name) for name in _ARGUMENTS[item.type]}
    return hub.ToolCall(item.tool or item.type, members or item.arguments, item.id, mcp_server=item.server)


def _responses(item: _Item, call: hub.ToolCall, losses: Losses) -> Iterator[hub.ToolCallResponse]:
    failed = item.status in _FAILED or bool(item.exit_code) or item.error is not None
    texts = [item.aggregated_output or "", (item.error and item.error.message) or ""]
    if item.result is not None:
        texts.append(_result_text(item.result, losses))
    text = "\n".join(filter(None, texts))
    if item.type == "web_search" and not failed:
        return  # the stream has no results of searches
    yield hub.ToolCallResponse(text or item.status or "", item.id, call.name, failed, call.mcp_server)


def _result_text(result: _Result, losses: Losses) -> str:
    """Return the text of an MCP result; its structured content says the same."""
    found = parts_of(result.content, "item.result.content[]", losses)
    losses.add("item.result.structured_content", result.structured_content)
    return hub.join_texts(part for _, part in found)


FORMAT = of_lines(NAME, "type thread_id item", _recognises, _Stream)
