"""Results of tau-bench and of tau2-bench, except speech simulations.

Source: https://github.com/sierra-research/tau-bench, https://github.com/sierra-research/tau2-bench.
Compared with: public files of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, judged, of_records
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import InputModel, parse_time, read_record
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_convert.messages import openai

_STOPPED = {"user_stop", "agent_stop"}


class _Result(InputModel):
    """A tau-bench result: OpenAI chat messages."""

    messages: list[Any] = Field(alias="traj")


class _Call(InputModel):
    id: str | None = None
    name: str
    arguments: Any = None
    requestor: str | None = None


class _Message(InputModel):
    role: str
    content: str | None = None
    id: str | None = None
    error: bool | None = None
    requestor: str | None = None
    tool_calls: list[_Call] | None = None
    tool_messages: list[_Message] | None = None


class _Simulation(InputModel):
    """A tau2-bench simulation."""

    id: str
    end_time: str | None = None
    termination_reason: str | None = None
    messages: list[_Message] | None = None


def _of_result(value: Any, path: str) -> ir.Run:
    result, losses = read_record(_Result, value, path)
    messages = openai.messages_of(result.messages, f"{path}.traj".lstrip("."), losses)
    return ir.Run(messages, losses=losses)


def _of_simulation(value: Any, path: str) -> ir.Run:
    simulation, losses = read_record(_Simulation, value, path)
    if simulation.messages is None:
        raise ConversionError(f"{simulation.id}: no messages; speech simulations are not supported")
    reason = simulation.termination_reason
    return ir.Run(
        [message for message_item in simulation.messages for message in _messages(message_item, losses)],
        native_id=simulation.id,
        ended_at=parse_time(simulation.end_time),
        ending=None if reason in (None, *_STOPPED) else told_by(reason) or "failed",
        losses=losses,
    )


def _messages(message: _Message, losses: Losses) -> Iterator[ir.Message]:
    role = ir.role_of(message.role, "messages[]")
    if message.tool_messages is not None:
        for message_item in message.tool_messages:
            yield from _messages(message_item, losses)
    elif role == "tool" and message.requestor == "user":
        losses.add("messages[] of the user's tools", message.content or "-")
    elif role == "tool":
        response = ir.ToolCallResponse(message.content or "", message.id, failed=message.error is True)
        yield ir.message(role, response)
    else:
        parts: list[ir.Part] = [ir.Text(message.content)] if message.content else []
        for call in message.tool_calls or ():
            if role == "assistant":
                parts.append(ir.ToolCall(call.name, call.arguments, call.id or None))
            else:
                losses.add("messages[] of the user's tools", [call.name, call.arguments])
        yield ir.message(role, *parts)


_RESULT, _SIMULATION = {"traj": list}, {"id": ..., "task_id": ..., "termination_reason": ...}
_is_result = any_of(_RESULT)

FORMAT = InputFormat(
    "tau_bench",
    __doc__,
    "task_id reward traj",
    *of_records(
        any_of(_RESULT, _SIMULATION),
        lambda value, path: judged(_of_result if _is_result(value) else _of_simulation, value, path),
        within="simulations",
    ),
)
