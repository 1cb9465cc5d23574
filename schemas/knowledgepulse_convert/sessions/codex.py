"""Sessions of Codex, of all layouts: ``~/.codex/sessions/**/rollout-*.jsonl``.

Since September 2025, each line is ``{"timestamp", "type", "payload"}``: items of the Responses API, events of
the interface and settings. Before, the lines are the items themselves, after one with the session's id; the
oldest files are a single object with ``session`` and ``items``. Since 0.147, the interface's events may be
items, too: ``item_completed`` replaces ``user_message`` and the events of a call's end.

Source: https://github.com/openai/codex, ``codex-rs/protocol``.
Compared with: public files of all layouts, up to 0.147, and runs of 0.171.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, of_lines
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    as_text,
    count_others,
    parse_json,
    text_or_none,
    without,
)
from knowledgepulse_convert.common.session_log import Reader, project_of
from knowledgepulse_convert.common.statuses import is_failure
from knowledgepulse_convert.common.words import words
from knowledgepulse_convert.messages import openai

_WRAPPERS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_STATES = {"world_state", "token_usage_record", "security_risk_score", "inter_agent_communication_metadata"}
"""Types of lines about the session that hold no item."""
_OWN_MEMBERS = {"namespace", "phase", "internal_chat_message_metadata_passthrough"}
_SERVER = "mcp__"
_ENDINGS = {"task_started": None, "turn_started": None, "task_complete": True, "turn_complete": True}
"""Whether the agent has ended, by the events of a turn; None if its messages have to tell."""
_ITEM_EVENTS = {"item_started", "item_updated", "item_completed"}
_REPEATING_ITEMS = words(
    """
    agentmessage reasoning plan hookprompt contextcompaction subagentactivity sleep websearch imageview
    imagegeneration extension
    """
)
"""Types of the interface's items that repeat items of the API, in lower case."""
_CALL_ITEMS = {"commandexecution", "dynamictoolcall", "collabagenttoolcall", "filechange", "mcptoolcall"}
"""Types of the interface's items that record the end of a call, in lower case."""
_EVENTS = words(
    """
    agent_message agent_message_delta agent_reasoning agent_reasoning_raw_content token_count
    agent_reasoning_section_break agent_reasoning_delta session_configured user_message error task_started
    turn_started task_complete turn_complete turn_aborted turn_diff warning exec_command_begin
    exec_command_end exec_command_output_delta exec_approval_request patch_apply_begin patch_apply_updated
    patch_apply_end apply_patch_approval_request mcp_tool_call_begin mcp_tool_call_end web_search_begin
    web_search_end view_image_tool_call dynamic_tool_call_request dynamic_tool_call_response
    image_generation_begin image_generation_end plan_update context_compacted thread_rolled_back
    thread_name_updated entered_review_mode exited_review_mode undo_started undo_completed background_event
    stream_error deprecation_notice mcp_startup_update mcp_startup_complete thread_goal_updated
    get_history_entry_response list_custom_prompts_response skills_update_available model_reroute
    collab_agent_spawn_begin collab_agent_spawn_end collab_agent_interaction_begin
    collab_agent_interaction_end collab_waiting_begin collab_waiting_end collab_close_begin collab_close_end
    collab_resume_begin collab_resume_end request_user_input guardian_warning elicitation_request
    request_permissions hook_started hook_completed terminal_interaction thread_settings_applied
    guardian_assessment sub_agent_activity raw_response_item
    """
)
"""Events that are about the interface, or whose content is also in items of the API."""
_NOTICE = re.compile(r"\s*(?:<[a-z_]+>|# AGENTS\.md instructions )")
"""How texts begin that Codex itself puts among the user's."""


def _recognises(line: dict[str, Any]) -> bool:
    if line.get("type") in _WRAPPERS:
        return isinstance(line.get("payload"), dict)
    session = line.get("session", line)
    if "record_type" in line or not isinstance(session, dict):
        return line.get("record_type") == "state"
    is_meta = {"id", "timestamp", "instructions"} <= set(session) and "type" not in session
    return is_meta and ("items" in line or session is line)


class _Session(Reader):
    def __init__(self) -> None:
        super().__init__()
        self._at: datetime | None = None
        self._is_copy = False  # a subagent's file may begin with its parent's
        self._requests: list[tuple[int, set[str]]] = []  # texts of the user that no event has confirmed
        self._has_events = False
        self._confirmed: dict[str, Counter[str]] = {}  # how often each kind of event has told a request

    def add(self, value: dict[str, Any]) -> None:
        """Add a line."""
        kind, payload = value.get("type"), value.get("payload")
        self._at = self.transcript.reached(value.get("timestamp"))
        if isinstance(payload, dict) and isinstance(kind, str):
            count_others(value, {"timestamp", "type", "payload"}, "", self.losses)
            self._add_wrapped(kind, payload)
        elif isinstance(value.get("items"), list):
            count_others(value, {"session", "items"}, "", self.losses)
            self._add_meta(value.get("session"))
            for item in value["items"]:
                self._add_item(item)
        elif isinstance(kind, str):
            self._add_item(value)
        elif {"id", "timestamp"} <= set(value):
            self._add_meta(value)
        else:
            self.losses.add(str(value.get("record_type") or "other lines"), value)

    def finish(self) -> ir.Run:
        """Return the run; without events, texts of the user are requests unless they begin as notices."""
        if not self._has_events:
            for position, texts in self._requests:
                if not any(_NOTICE.match(text) for text in texts):
                    self.transcript.change(position, role="user")
        return super().finish()

    def _add_wrapped(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "session_meta":
            self._add_meta(payload)
            return
        if self._is_copy and (turn := payload.get("turn_id")):
            # Ids are ordered by time: the subagent's turns are younger than its session.
            self._is_copy = str(turn) < (self.transcript.run.native_id or "")
        if self._is_copy:
            self.losses.add("copied lines of the parent", payload, is_known=True)
        elif kind == "response_item":
            self._add_item(payload)
        elif kind == "event_msg":
            self._add_event(str(payload.get("type")), payload)
        else:
            if kind == "turn_context":
                self.transcript.named(payload.get("model"))
            known = kind in _WRAPPERS or kind in _STATES
            add = self.losses.add if known else self.losses.add_unknown
            add(kind, payload)

    def _add_meta(self, meta: Any) -> None:
        """Read the session's id and origin; a session that continues or copies another one repeats them."""
        run = self.transcript.run
        if not isinstance(meta, dict) or not isinstance(meta.get("id"), str):
            self.losses.add("session_meta", meta)
            return
        rest = without(meta, "id")
        if (base := rest.pop("history_base", None)) is not None:
            self.losses.add_unknown("the session up to this fork", base, {"content": as_text(base)})
        self.losses.add("session_meta", rest)
        if run.native_id is None:
            run.native_id, run.names = meta["id"], project_of(meta.get("cwd"))
            parent, name = meta.get("parent_thread_id"), None
            match meta.get("source"):
                case {"subagent": str(kind)}:
                    name = kind
                case {"subagent": {"thread_spawn": dict(origin)}}:
                    parent, name = origin.get("parent_thread_id") or parent, origin.get("agent_role")
            run.parent_id, run.agent_id = text_or_none(parent), text_or_none(name)
        elif meta["id"] != run.native_id:
            self._is_copy = run.parent_id is not None
            if run.messages and not self._is_copy:
                self.transcript.add_session(meta["id"])

    def _add_item(self, item: Any) -> None:
        """Add an item of the Responses API."""
        try:
            own, server = _responses_item(item)
            [message] = openai.messages_of([own], "response_item", self.losses)
        except ConversionError:
            self.losses.add_unknown("items of another form", item)
            return
        if item.get("type") == "agent_message":
            self.transcript.add("user", message.parts, self._at)
            return
        if message.role == "user":
            self._add_request(message.parts)
            return
        if message.role == "assistant":
            phase = item.get("phase")
            self.has_ended = None if phase is None else phase == "final_answer"
        parts = [_own(part, server, self.losses) for part in message.parts]
        self.transcript.add(message.role, parts, self._at)

    def _add_request(self, parts: tuple[ir.Part, ...]) -> None:
        """Add a text of the user, which an event confirms if it is not Codex's own."""
        position = self.transcript.add("system", parts, self._at)
        if position is not None:
            texts = {part.content.strip() for part in parts if isinstance(part, ir.Text)}
            self._requests.append((position, {ir.join_texts(parts).strip(), *texts}))

    def _add_event(self, kind: str, event: dict[str, Any]) -> None:
        rest = event
        if kind == "user_message" and isinstance(event.get("message"), str):
            self._confirm(kind, event["message"])
            rest = without(event, "type", "message")
        elif kind in _ENDINGS:
            self.has_ended = _ENDINGS[kind]
            rest = self._without_error(event)
        elif kind == "thread_rolled_back":
            self._roll_back(event.get("num_turns"))
        elif kind == "turn_aborted":
            self.has_ended = True
            self.transcript.add("assistant", [ir.Error(interruption=True)], self._at)
        elif kind == "error":
            self.transcript.add("assistant", [ir.Error(str(event.get("message") or ""))], self._at)
            rest = without(event, "type", "message")
        elif kind.endswith("_end") and isinstance(event.get("call_id"), str):
            self._add_end(event["call_id"], event)
        elif kind in _ITEM_EVENTS:
            self._add_item_event(kind, event)
            return
        add = self.losses.add if kind in _EVENTS else self.losses.add_unknown
        add(f"event_msg.{kind}", rest)

    def _without_error(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the end of a turn without the error that it tells, which is added."""
        match event.get("error"):
            case {"message": str(message), **error}:
                self.transcript.add("assistant", [ir.Error(message)], self._at)
                return event | {"error": error}
        return event

    def _roll_back(self, turns: Any) -> None:
        """Remove the last turns, each from its request on."""
        messages = self.transcript.run.messages
        requests = [position for position, message in enumerate(messages) if message.role == "user"]
        if requests and isinstance(turns, int) and turns > 0:
            self.transcript.take_back(requests[-min(turns, len(requests))])
            self._requests = [waiting for waiting in self._requests if waiting[0] < len(messages)]
            self.has_ended = None

    def _add_item_event(self, event_kind: str, event: dict[str, Any]) -> None:
        """Read an item of the interface: it may confirm a request, or record the end of a call."""
        item: dict[str, Any] = event["item"] if isinstance(event.get("item"), dict) else {}
        kind = str(item.get("type"))
        name = kind.replace("_", "").lower()  # also in camel case and in snake case
        path = f"event_msg.{event_kind}.{kind}"
        if event_kind != "item_completed":
            self.losses.add(path, event)
        elif name == "usermessage" and (text := _text_of(item.get("content"))):
            self._confirm(event_kind, text)
            content = [without(block, "text") if _is_text(block) else block for block in item["content"]]
            self.losses.add(path, {**event, "item": {**item, "content": content}})
        elif name in _CALL_ITEMS:
            if isinstance(item.get("id"), str):
                self._add_end(item["id"], item)
            self.losses.add(path, event)
        elif name in _REPEATING_ITEMS:
            self.losses.add(path, event)
        else:
            self.losses.add_unknown(path, event)

    def _confirm(self, kind: str, text: str) -> None:
        """Make the item with the text of an event a request of the user.

        Some versions write two kinds of events for one request; the second event changes nothing.
        """
        self._has_events = True
        told, key = self._confirmed.setdefault(kind, Counter()), text.strip()
        told[key] += 1
        if any(other[key] >= told[key] for name, other in self._confirmed.items() if name != kind):
            return
        for index, (position, candidates) in enumerate(self._requests):
            if key in candidates:
                self._count_beside(text, self.transcript.run.messages[position])
                self.transcript.change(position, role="user", parts=(ir.Text(text),))
                del self._requests[: index + 1]
                return
        self.transcript.add("user", [ir.Text(text)], self._at)

    def _count_beside(self, request: str, item: ir.Message) -> None:
        """Count the texts of a user's item that its request does not contain."""
        texts = (part.content for part in item.parts if isinstance(part, ir.Text))
        others = [text for text in texts if text.strip() not in request]
        self.losses.add("texts beside a request", others)

    def _add_end(self, call_id: str, event: dict[str, Any]) -> None:
        """Add a call's duration, server and failure, which only the event of its end records."""
        match event.get("duration"):
            case {"secs": int(seconds), "nanos": int(nanoseconds)}:
                self.transcript.change_call(call_id, latency_ms=seconds * 1000 + nanoseconds / 1e6)
        match event.get("invocation"):
            case {"server": str(server)}:
                self.transcript.change_call(call_id, mcp_server=server)
            case None if isinstance(event.get("server"), str):
                self.transcript.change_call(call_id, mcp_server=event["server"])
        if _has_failed(event):
            self.transcript.fail(call_id)


def _responses_item(item: Any) -> tuple[dict[str, Any], str | None]:
    """Return an item as the Responses API has it, and its tool's server, or raise a ConversionError."""
    if not isinstance(item, dict):
        raise ConversionError("an item is not an object")
    own = without(item, *_OWN_MEMBERS)
    if item.get("type") == "tool_search_call":
        own |= {"type": "function_call", "name": "tool_search"}
    elif item.get("type") == "tool_search_output":
        own["output"] = own.pop("tools", None)
    elif item.get("type") == "agent_message":  # of the agent that started this one, or of one that it started
        own |= {"type": "message", "role": "user"}
    namespace = item.get("namespace")
    if isinstance(namespace, str) and namespace.startswith(_SERVER):
        return own, namespace.removeprefix(_SERVER)
    return own, None


def _own(part: ir.Part, server: str | None, losses: Losses) -> ir.Part:
    """Return a call with its tool's server, and a response with the failure that its exit code tells."""
    if isinstance(part, ir.ToolCall) and server is not None:
        return replace(part, mcp_server=server)
    if isinstance(part, ir.ToolCallResponse):
        match parse_json(part.response):
            case {"metadata": {"exit_code": exit_code, **metadata}, "output": str(output), **rest}:
                count_others(rest | metadata, set(), "response_item[].output", losses)
                return replace(part, response=output, failed=bool(exit_code))
    return part


def _has_failed(event: dict[str, Any]) -> bool:
    match event.get("result"):
        case {"Err": _} | {"Ok": {"isError": True}} | {"isError": True}:
            return True
    if is_failure(event.get("status")) or event.get("error"):
        return True
    return bool(event.get("exit_code")) or event.get("success") is False


def _text_of(content: Any) -> str:
    """Return the text of an item of the interface, whose other parts are images and mentions."""
    return "".join(
        block["text"] for block in (content if isinstance(content, list) else ()) if _is_text(block)
    )


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


FORMAT = InputFormat(
    "codex",
    __doc__,
    "timestamp type payload",
    *of_lines(_recognises, _Session),
    coding_agent=True,
    places={"Codex": ("~/.codex/sessions/**/rollout-*.jsonl*",)},
)
