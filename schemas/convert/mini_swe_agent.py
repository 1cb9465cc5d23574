"""mini-swe-agent trajectories (``.traj.json``): chat messages or Responses items, with more in ``extra``.

A submission is not yet a success: no tests have been run.

Source: https://mini-swe-agent.com/latest/usage/output_files/.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field

from knowledgepulse_schemas.convert import openai
from knowledgepulse_schemas.convert.hub import (
    Ending,
    Error,
    Message,
    Run,
    ToolCall,
    ToolCallResponse,
    join_texts,
)
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import SourceModel, count_unread, parse_time, read

NAME = "mini_swe_agent"

_TOOL = "bash"
_SUBMITTED = "Submitted"
_FORMAT_ERROR = "FormatError"


class _Action(SourceModel):
    command: str
    tool_call_id: str | None = None


class _Extra(SourceModel):
    """The commands in a message, or the exit status of one."""

    actions: list[_Action] = Field(default_factory=list)
    returncode: int | None = None
    exception_info: str | None = None
    interrupt_type: str | None = None
    timestamp: float | None = None


class _Info(SourceModel):
    exit_status: str | None = None
    submission: str | None = None


class _Trajectory(SourceModel):
    trajectory_format: str
    messages: list[dict[str, Any]]
    info: _Info = Field(default_factory=_Info)


def recognises(document: Any) -> bool:
    """Check for a trajectory with this format's version."""
    return isinstance(document, dict) and str(document.get("trajectory_format")).startswith("mini-swe-agent")


def runs(document: Any) -> Iterator[Run]:
    """Yield the run of a trajectory.

    Raises:
        ConversionError: the document is not a trajectory.
    """
    trajectory = read(_Trajectory, document)
    losses = Losses()
    count_unread(trajectory, "", losses)
    losses.add("info.submission", trajectory.info.submission)
    extras = [
        read(_Extra, value.get("extra") or {}, f"messages[{number}].extra")
        for number, value in enumerate(trajectory.messages)
    ]
    yield Run(
        NAME,
        list(_messages(trajectory.messages, extras, losses)),
        ended_at=parse_time(max((extra.timestamp for extra in extras if extra.timestamp), default=None)),
        ending=_ending(trajectory.info.exit_status),
        losses=losses,
    )


def _ending(status: str | None) -> Ending:
    return "submitted" if status in (None, "", _SUBMITTED) else "failed"


def _messages(values: list[dict[str, Any]], extras: list[_Extra], losses: Losses) -> Iterator[Message]:
    open_calls: deque[str] = deque()
    for number, (value, extra) in enumerate(zip(values, extras, strict=True)):
        count_unread(extra, "messages[].extra", losses)
        plain = {name: member for name, member in value.items() if name != "extra"}
        if plain.get("role") == "exit":
            losses.add("messages[] of the exit", [plain[name] for name in plain if name != "role"])
            continue
        # A model's answer through the Responses API is a message of its own.
        items = plain["output"] if isinstance(plain.get("output"), list) and "role" not in plain else [plain]
        for message in openai.messages_of(items, "messages", losses):
            yield _observed(message, extra, open_calls)
        for index, action in enumerate(extra.actions):
            if action.tool_call_id is None:  # a command in the text
                open_calls.append(f"action {number}.{index}")
                yield Message("assistant", (ToolCall(_TOOL, {"command": action.command}, open_calls[-1]),))


def _observed(message: Message, extra: _Extra, open_calls: deque[str]) -> Message:
    """Return a message with the failure that ``extra`` flags, and as a response if it has an exit status."""
    if extra.interrupt_type == _FORMAT_ERROR:
        return Message("assistant", (Error(join_texts(message.parts)),))
    failed = bool(extra.returncode) or bool(extra.exception_info)
    if message.role == "tool":
        parts = (replace(part, failed=failed) for part in message.parts if isinstance(part, ToolCallResponse))
        return Message("tool", tuple(parts))
    if message.role == "user" and extra.returncode is not None and open_calls:
        response = ToolCallResponse(join_texts(message.parts), open_calls.popleft(), failed=failed)
        return Message("tool", (response,))
    return message
