"""mini-swe-agent trajectories (``.traj.json``): chat messages or Responses items, with more in ``extra``.

Version 1, and the bare list of messages before it, have no more: the commands are the code blocks in the
assistant's texts, and the user's texts after them begin with the exit status. A submission is not yet a
success: no tests have been run.

Accepts: ``.traj.json`` files, the bare message lists of early versions included.
Source: https://mini-swe-agent.com/latest/usage/output_files/.
Compared with: public files of versions 1 and 2, and runs of 2.4.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.elements import elements
from knowledgepulse_convert.common.input_format import InputFormat
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    parse_json,
    parse_time,
    read,
    read_record,
    unwrap,
    without,
)
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_convert.common.text_calls import with_calls
from knowledgepulse_convert.common.verdicts import Verdicts
from knowledgepulse_convert.messages import openai
from knowledgepulse_convert.messages.any_vendor import messages_of
from knowledgepulse_schemas.trace import Ending

_FIRST_VERSION = "mini-swe-agent-1"
_FORMAT_ERROR = "FormatError"
_NOT_EXECUTED = "action was not executed"
"""What answers a call that ended the run before, and that the model does not see."""
_TASK = "{{task}}"
_JINJA = re.compile(r"\{[{%#]")
_COMMAND = re.compile(r"```(mswea_bash_command|bash)(?>\s*\n)")
_STATUS = re.compile(r"\s*<returncode>(-?\d+)</returncode>")


class _Action(InputModel):
    command: str
    tool_call_id: str | None = None


class _Extra(InputModel):
    """The commands in a message, or the exit status of a command."""

    actions: list[_Action] = Field(default_factory=list)
    returncode: int | None = None
    exception_info: str | None = None
    interrupt_type: str | None = None
    timestamp: float | None = None


class _Info(InputModel):
    exit_status: str | None = None
    submission: str | None = None


class _Trajectory(InputModel):
    trajectory_format: str
    messages: list[dict[str, Any]]
    info: _Info = Field(default_factory=_Info)


def _recognises(document: Any) -> bool:
    """Check for a trajectory with this format's version, or a list of messages with commands and outputs."""
    if isinstance(document, dict) and "trajectory_format" in document:
        return str(document["trajectory_format"]).startswith("mini-swe-agent")
    values = unwrap(document, "messages")
    return (
        isinstance(values, list)
        and all(map(_is_plain, values))
        and any(_answers(*two) for two in pairwise(values))
    )


def _runs(document: Any) -> Iterator[ir.Run]:
    if isinstance(document, list):
        document = {"messages": document}
    if isinstance(document, dict):
        document = {"trajectory_format": _FIRST_VERSION, **document}
    verdicts = Verdicts(document)
    trajectory, losses = read_record(_Trajectory, verdicts.rest)
    extras = [
        read(_Extra, value.get("extra") or {}, f"messages[{number}].extra")
        for number, value in enumerate(trajectory.messages)
    ]
    in_texts = trajectory.trajectory_format == _FIRST_VERSION
    ending = _read_texts(trajectory.messages, extras) if in_texts else None
    messages = list(_split_task(_messages(trajectory.messages, extras, losses), trajectory.info))
    submission = (trajectory.info.submission or "").strip()
    if in_texts:  # it is the response to the last command
        losses.add("info.submission", submission)
    elif submission not in ["", *(ir.join_texts(message.parts).strip() for message in messages)]:
        messages.append(ir.message("assistant", ir.Text(submission)))
    yield ir.Run(
        list(with_calls(messages, losses, among_calls=True)) if in_texts else messages,
        ended_at=parse_time(max((time for extra in extras for time in _times(extra)), default=None)),
        ending=_ending(trajectory.info.exit_status) or ending,
        unverified=True,
        outcome=verdicts.outcome,
        task_id=verdicts.task_id,
        losses=losses,
    )


def _ending(exit_status: str | None) -> Ending | None:
    """Return how a run ended, which a status tells as soon as there is one."""
    if not exit_status:
        return None
    return "submitted" if exit_status == "Submitted" else told_by(exit_status) or "failed"


def _is_plain(value: Any) -> bool:
    is_message = isinstance(value, dict) and value.keys() == {"role", "content"}
    return is_message and isinstance(value["content"], str)


def _answers(value: dict[str, Any], following: dict[str, Any]) -> bool:
    """Check for a text with one command that is followed by a text with its exit status."""
    command = value["role"] == "assistant" and len(_commands(value["content"])) == 1
    return command and following["role"] == "user" and _STATUS.match(following["content"]) is not None


def _commands(text: str) -> list[str]:
    return [element.content for element in elements(text, _COMMAND, "\n```") if element.closed]


def _read_texts(values: list[dict[str, Any]], extras: list[_Extra]) -> Ending | None:
    """Complete the extras with the commands and the exit statuses in the texts, and return how the run ended.

    The output of the last command is the submission, without a status; elsewhere, such a command timed out. A
    text with more than one command, or none, is answered by an error.
    """
    ending: Ending | None = None
    for number, (value, following) in enumerate(pairwise(values), start=1):
        if (value.get("role"), following.get("role")) != ("assistant", "user"):
            continue
        commands = _commands(as_text(value.get("content")))
        if len(commands) != 1:
            extras[number].interrupt_type = _FORMAT_ERROR
            continue
        status = _STATUS.match(as_text(following.get("content")))
        timed_out = status is None and number + 1 < len(values)
        ending = "submitted" if status is None and not timed_out else None
        extras[number - 1].actions = [_Action(command=commands[0])]
        extras[number].returncode = int(status[1]) if status else int(timed_out)
    return ending


def _times(extra: _Extra) -> Iterator[float]:
    if extra.timestamp is not None:
        yield extra.timestamp
    match extra.model_extra:
        case {"response": {"created": int(created)}}:
            yield created


def _messages(values: list[dict[str, Any]], extras: list[_Extra], losses: Losses) -> Iterator[ir.Message]:
    open_calls: deque[str] = deque()
    for number, (value, extra) in enumerate(zip(values, extras, strict=True)):
        if extra.interrupt_type == _FORMAT_ERROR:  # the refused answer is nowhere else
            refused = (extra.model_extra or {}).pop("response", "")
            yield from messages_of(refused, "assistant", "messages[].extra.response", losses)
        count_unmapped(extra, "messages[].extra", losses)
        plain = without(value, "extra")
        if plain.get("role") == "exit" or extra.exception_info == _NOT_EXECUTED:
            losses.add("messages[] of the exit", [plain[name] for name in plain if name != "role"])
            continue
        items = [plain]
        if isinstance(plain.get("output"), list) and "role" not in plain:
            # A model's answer through the Responses API is a message of its own.
            items = plain["output"]
            count_others(plain, {"output"}, "messages[]", losses)
        for message in openai.messages_of(items, "messages", losses):
            yield _observed(message, extra, open_calls)
        for index, action in enumerate(extra.actions):
            if action.tool_call_id is None:  # a command in the text
                open_calls.append(f"action {number}.{index}")
                call = ir.ToolCall("bash", {"command": action.command}, open_calls[-1])
                yield ir.message("assistant", call)


def _observed(message: ir.Message, extra: _Extra, open_calls: deque[str]) -> ir.Message:
    """Return a message with the failure that ``extra`` flags; with an exit status, it is a response."""
    if extra.interrupt_type == _FORMAT_ERROR:
        return ir.message("assistant", ir.Error(ir.join_texts(message.parts)))
    failed = bool(extra.returncode) or bool(extra.exception_info)
    if message.role == "tool":
        answers = (part for part in message.parts if isinstance(part, ir.ToolCallResponse))
        return ir.message("tool", *(_of_json(replace(answer, failed=failed)) for answer in answers))
    if message.role == "user" and extra.returncode is not None and open_calls:
        response = ir.ToolCallResponse(ir.join_texts(message.parts), open_calls.popleft(), failed=failed)
        return ir.message("tool", response)
    return message


def _of_json(answer: ir.ToolCallResponse) -> ir.ToolCallResponse:
    """Return a response with the output and the error in it, which version 2 writes as JSON."""
    match parse_json(answer.response):
        case {"returncode": int(), "output": str(output), **rest} if rest.keys() <= {"exception_info"}:
            problem = as_text(rest.get("exception_info"))
            return replace(answer, response="\n".join(filter(None, [output, problem])))
    return answer


def _split_task(messages: Iterable[ir.Message], info: _Info) -> Iterator[ir.Message]:
    """Yield messages, of which the request has only the task, without the template around it."""
    before, after = "", ""
    match info.model_extra:
        case {"config": {"agent": {"instance_template": str(template)}}}:
            before, _, after = template.partition(_TASK)
            after = _JINJA.split(after)[0].rstrip()
    for message in messages:
        text = ir.join_texts(message.parts)
        if after and message.role == "user" and text.startswith(before) and after in text:
            task, _, rest = text.removeprefix(before).partition(after)
            yield ir.message("system", ir.Text(before), ir.Text(after + rest))
            yield ir.message("user", ir.Text(task))
            after = ""
        else:
            yield message


FORMAT = InputFormat(
    "mini_swe_agent", __doc__, "trajectory_format messages info", _recognises, _runs, coding_agent=True
)
