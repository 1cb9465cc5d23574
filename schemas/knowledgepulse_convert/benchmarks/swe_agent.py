"""SWE-agent's trajectories: ``.traj`` files.

A submission is not yet a success: no tests have been run.

Source: https://swe-agent.com/latest/usage/trajectories/.
Compared with: public files of 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.input_format import InputFormat
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    parse_json,
    read,
)
from knowledgepulse_convert.common.verdicts import Verdicts
from knowledgepulse_convert.messages import openai
from knowledgepulse_schemas.trace import Ending

_ENDINGS: dict[str | None, Ending | None] = {None: None, "": None, "submitted": "submitted"}
"""The exits that were not forced, as those are by a limit or an error, with a submission or without one."""


class _Turn(InputModel):
    """A message of the history: a chat message with its parsed thought and action."""

    role: str
    content: Any = None
    message_type: str | None = None
    thought: str | None = None
    action: str | None = None
    is_demo: bool | None = None
    agent: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_ids: list[str] | None = None


class _Step(InputModel):
    thought: str | None = None
    response: str | None = None
    action: str | None = None
    observation: str | None = None
    messages: Any = None  # the model's input, a part of the history


class _Info(InputModel):
    exit_status: str | None = None
    submission: str | None = None


class _Trajectory(InputModel):
    history: list[_Turn] | None = None
    trajectory: list[_Step] | None = None
    info: _Info | None = None
    environment: str | None = None
    replay_config: Any = None


def _recognises(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    steps, history = document.get("trajectory"), document.get("history")
    if isinstance(steps, list) and steps:
        return all(isinstance(step, dict) and "action" in step for step in steps)
    if not isinstance(history, list) or not all(isinstance(message, dict) for message in history):
        return False
    return any("message_type" in message or "agent" in message for message in history)


def _runs(document: Any) -> Iterator[ir.Run]:
    verdicts, losses = Verdicts(document), Losses()
    log = read(_Trajectory, verdicts.rest)
    info, steps = log.info or _Info(), log.trajectory or []
    count_unmapped(info, "info", losses)
    losses.add("info.submission", info.submission)
    losses.add("replay_config", log.replay_config)
    count_others(log.model_extra or {}, set(), "", losses)
    if log.history:
        messages = list(_of_history(log.history, losses))
        _complete(messages, steps)
    else:
        messages = [*_of_problem(log.replay_config), *_of_steps(steps)]
    _count_unsaid(steps, messages, losses)
    agents = [turn.agent for turn in log.history or () if turn.agent]
    names = tuple(dict.fromkeys(name for name in [*agents[:1], log.environment] if name))
    yield ir.Run(
        messages,
        ending=_ENDINGS.get(info.exit_status, "cut_off"),
        unverified=True,
        names=names,
        outcome=verdicts.outcome,
        task_id=verdicts.task_id or _problem_id(log.replay_config),
        losses=losses,
    )


def _of_history(turns: list[_Turn], losses: Losses) -> Iterator[ir.Message]:
    call: ir.ToolCall | None = None
    for number, turn in enumerate(turns):
        if turn.is_demo or turn.message_type == "demonstration":
            content = [turn.content, turn.tool_calls, turn.model_extra]
            losses.add("history[] of a demonstration", content)
            continue
        chat = {"role": turn.role, "content": turn.content, "tool_calls": turn.tool_calls}
        if turn.tool_call_ids:
            chat |= {"role": "tool", "tool_call_id": turn.tool_call_ids[0]}
        count_unmapped(turn, "history[]", losses)
        (message,) = openai.messages_of([chat], "history", losses)
        if turn.role == "assistant" and turn.action and not turn.tool_calls:
            call = _call(turn.action, f"turn {number}")
            yield ir.Message("assistant", (ir.Text(turn.thought or as_text(turn.content)), call))
            if turn.thought and turn.thought not in as_text(turn.content):
                losses.add("history[].content", turn.content)
        elif turn.role == "user" and call is not None and turn.message_type != "instance_template":
            yield ir.message("tool", ir.ToolCallResponse(ir.join_texts(message.parts), call.id))
            call = None
        else:
            yield message


def _complete(messages: list[ir.Message], steps: list[_Step]) -> None:
    """Add the end of the run that the history omits: the last observation, or the whole submission."""
    turns = sum(message.role == "assistant" for message in messages)
    if not turns or len(steps) < turns:
        return
    last = messages[-1]
    if last.role == "assistant" and (observation := steps[turns - 1].observation):
        call = next((part for part in last.parts if isinstance(part, ir.ToolCall)), None)
        messages.append(ir.message("tool", ir.ToolCallResponse(observation, call.id if call else None)))
    messages += _of_steps(steps[turns:])


def _of_problem(configuration: Any) -> Iterator[ir.Message]:
    """Yield the task of a trajectory without a history."""
    match configuration:
        case {"problem_statement": {"text": str(text)} | {"problem_statement": str(text)}}:
            yield ir.message("user", ir.Text(text))


def _problem_id(configuration: Any) -> str | None:
    match parse_json(configuration):
        case {"problem_statement": {"id": str(problem_id)}}:
            return problem_id
    return None


def _of_steps(steps: list[_Step]) -> Iterator[ir.Message]:
    for number, step in enumerate(steps):
        call = _call(step.action or "", f"action {number}")
        text = ir.Text(step.thought or step.response or "")
        yield ir.message("assistant", text, call if step.action else None)
        yield ir.message("tool", ir.ToolCallResponse(step.observation or "", call.id))


def _call(action: str, call_id: str) -> ir.ToolCall:
    """Convert a command to a tool call; its first word is the tool."""
    words = action.split(maxsplit=1)
    return ir.ToolCall(words[0] if words else "", {"command": action.strip()}, call_id)


def _count_unsaid(steps: list[_Step], messages: list[ir.Message], losses: Losses) -> None:
    """Count the content of the steps that the messages lack, such as times and states."""
    transcript = ir.transcript_of(messages)
    for step in steps:
        count_unmapped(step, "trajectory[]", losses)
        for name in ("thought", "observation"):
            text = getattr(step, name)
            if text and text.strip() not in transcript:
                losses.add(f"trajectory[].{name}", text)


FORMAT = InputFormat("swe_agent", __doc__, "trajectory history info", _recognises, _runs, coding_agent=True)
