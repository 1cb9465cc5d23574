"""OpenHands conversation events and evaluation output.

Both event formats are supported: the SDK's (``kind``: MessageEvent, ActionEvent, …) and the earlier one
(``action`` and ``observation``). A finished run is not yet a success: no tests have been run.

Accepts: a conversation's events, before and since the SDK, also the files ``events/*.json``, given at once;
    an evaluation's ``output.jsonl``.
Source: https://docs.openhands.dev/sdk/arch/events, https://github.com/OpenHands/OpenHands.
Compared with: public files from before and since the SDK, and runs of 1.58.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.exit_codes import exit_code_of
from knowledgepulse_convert.common.input_format import InputFormat, are_all
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    items_of,
    parse_json,
    parse_time,
    read,
    unwrap,
)
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_convert.common.verdicts import Verdicts
from knowledgepulse_convert.common.words import words
from knowledgepulse_convert.messages.blocks import contents_of, text_of
from knowledgepulse_convert.messages.definitions import definitions_of

_KINDS = ("MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent", "UserRejectObservation")
_FAILURE = "ConversationErrorEvent"
_STATES = ("error", "stuck")
"""The states of a conversation that has failed."""
_OWN = {"kind", "source", "args", "extras"}
"""Members that no other program's records of actions have, as far as is known."""
_UUID = len("xxxxxxxx-xxxx-xxxx")
"""The least length of the SDK's ids; earlier versions number their events."""
_BOOKKEEPING = words(
    """
    null agent_state_changed change_agent_state recall condensation condensation_request
    """
)
_EVENTS = words(
    """
    SystemPromptEvent ConversationStateUpdateEvent TokenEvent PauseEvent LLMCompletionLogEvent Condensation
    CondensationRequest CondensationSummaryEvent InterruptEvent HookExecutionEvent StreamingDeltaEvent
    """
)
"""Events that are neither messages nor calls."""


class _Metadata(InputModel):
    function_name: str | None = None
    tool_call_id: str | None = None


class _LegacyEvent(InputModel):
    source: str | None = None
    timestamp: str | None = None
    action: str | None = None
    observation: str | None = None
    args: dict[str, Any] | None = None
    content: Any = None
    message: Any = None
    extras: dict[str, Any] | None = None
    tool: _Metadata | None = Field(default=None, alias="tool_call_metadata")
    thought: str | None = None
    exit_code: int | None = None
    id: Any = None
    cause: Any = None


class _LlmMessage(InputModel):
    role: str
    content: str | list[dict[str, Any]] = ""
    reasoning_content: str | None = None


class _ToolCall(InputModel):
    id: str | None = None
    name: str | None = None
    arguments: Any = None


class _Observed(InputModel):
    content: str | list[dict[str, Any]] = ""
    is_error: bool | None = None


class _Event(InputModel):
    kind: str
    source: str | None = None
    timestamp: str | None = None
    llm_message: _LlmMessage | None = None
    thought: list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    action: dict[str, Any] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_call: _ToolCall | None = None
    observation: _Observed | None = None
    error: str | None = None
    rejection_reason: str | None = None
    key: str | None = None
    value: Any = None
    code: str | None = None
    detail: str | None = None


class _Output(InputModel):
    """A line of an evaluation's ``output.jsonl`` file."""

    history: list[Any]
    instruction: str | None = None
    error: str | None = None


def _runs(document: Any) -> Iterator[ir.Run]:
    losses = Losses()
    if isinstance(document, dict) and "history" in document:
        verdicts = Verdicts(document)
        output = read(_Output, verdicts.rest)
        run = _run(output.history, "history", losses)
        count_unmapped(output, "", losses)
        _set_user_message(run.messages, output.instruction)
        if output.error:
            run.messages.append(ir.message("assistant", ir.Error(output.error)))
        run.outcome, run.task_id = verdicts.outcome, verdicts.task_id
        yield run
    else:
        events = document if isinstance(document, list) else [document]
        if len(events) == 1:
            raise ConversionError("one event of a conversation; convert all of its `events/*.json` at once")
        yield _run(events, "", losses)


def _set_user_message(messages: MutableSequence[ir.Message], instruction: str | None) -> None:
    """Make the instruction the user's message if there is none.

    The oldest files omit the instruction's sender, or the message itself.
    """
    if instruction is None or any(message.role == "user" for message in messages):
        return
    prompt = ir.message("user", ir.Text(instruction))
    index = next((n for n, message in enumerate(messages) if message.parts == prompt.parts), None)
    if index is None:
        messages.insert(0, prompt)
    else:
        messages[index] = prompt


def _run(values: list[Any], path: str, losses: Losses) -> ir.Run:
    run = ir.Run([], unverified=True, losses=losses)
    for number, value in enumerate(values):
        if isinstance(value, dict) and "kind" in value:
            event = read(_Event, value, f"{path}[{number}]")
            run.messages.append(_message(event, f"{path}[]", losses))
            is_update = event.kind == "ConversationStateUpdateEvent"
            status = event.code if event.kind == _FAILURE else event.value if is_update else None
            failed = event.kind == _FAILURE or status in _STATES
        else:
            legacy = read(_LegacyEvent, value, f"{path}[{number}]")
            run.messages.append(_legacy_message(legacy, f"{path}[]", losses))
            status = (legacy.extras or {}).get("agent_state")
            failed = status in _STATES
        run.ended_at = parse_time(value.get("timestamp")) or run.ended_at
        if failed:
            run.ending = told_by(status) or "failed"
    first = values[0].get("id") if values else None
    if isinstance(first, str) and len(first) >= _UUID:
        run.native_id = first
    return run


def _message(event: _Event, path: str, losses: Losses) -> ir.Message:
    if event.kind not in _KINDS:
        return _other_message(event, path, losses)
    count_unmapped(event, path, losses)
    if event.llm_message is not None:
        content = contents_of(event.llm_message.content, f"{path}.llm_message.content[]", losses)
        if event.llm_message.role != "assistant":
            return ir.message("system" if event.llm_message.role == "system" else "user", *content)
        return ir.message("assistant", ir.reasoning(event.llm_message.reasoning_content), *content)
    if event.kind == "ActionEvent":
        return _action(event, path, losses)
    failed = event.kind != "ObservationEvent"
    if event.observation is not None:
        text = text_of(event.observation.content, f"{path}.observation.content[]", losses)
        extra = event.observation.model_extra or {}
        failed = (
            failed or event.observation.is_error is True or exit_code_of(extra) > 0
        )  # below, it still ran
    else:
        text = event.error or event.rejection_reason or ""
    return ir.message("tool", ir.ToolCallResponse(text, event.tool_call_id, event.tool_name, failed=failed))


def _other_message(event: _Event, path: str, losses: Losses) -> ir.Message:
    if event.kind == _FAILURE:
        count_unmapped(event, path, losses)
        losses.add(f"{path}.code", event.code if event.detail else None)
        return ir.message("assistant", ir.Error(event.detail or event.code or ""))
    kept = {"kind": event.kind, **(event.model_extra or {}), "value": event.value}
    if event.kind == "SystemPromptEvent":
        return _system(kept.pop("system_prompt", None), kept, path, losses)
    if event.kind not in _EVENTS:
        kept |= event.model_dump(exclude_none=True)
        losses.add_unknown(f"{path}.{event.kind}", kept)
    else:
        losses.add(f"{path}.{event.kind}", kept)
    return ir.message("assistant")


def _system(text: Any, rest: dict[str, Any], path: str, losses: Losses) -> ir.Message:
    """Return the message of an event with the system's text; ``rest`` holds the tools and the losses."""
    if isinstance(text, dict):
        rest["system_prompt"] = dict(text)
        text = rest["system_prompt"].pop("text", None)
    defined = definitions_of(rest.pop("tools", None) or [], f"{path}.tools", losses)
    count_others(rest, set(), path, losses)
    return ir.message("system", ir.Text(as_text(text)), *ir.parts_in(defined))


def _action(event: _Event, path: str, losses: Losses) -> ir.Message:
    thought = contents_of(event.thought, f"{path}.thought[]", losses)
    called = event.tool_call or _ToolCall()
    arguments = called.arguments if called.arguments is not None else event.action
    match parse_json(called.arguments):
        case dict(written):  # the action repeats them, and may have more
            repeated = {name for name, value in written.items() if value == (event.action or {}).get(name)}
            count_others(event.action or {}, repeated, f"{path}.action", losses)
    call = ir.ToolCall(event.tool_name or called.name or "", arguments, event.tool_call_id or called.id)
    match event.action:
        case {"kind": "FinishAction", "message": str(result)}:
            thought.append(ir.Text(result))
    return ir.message("assistant", ir.reasoning(event.reasoning_content), *thought, call)


def _legacy_message(event: _LegacyEvent, path: str, losses: Losses) -> ir.Message:
    kind = event.action or event.observation or ""
    if kind in _BOOKKEEPING or (event.action is None and event.observation is None):
        unused = [event.message, event.content, event.args, event.extras, event.model_extra]
        losses.add(f"{path}.{kind or 'event'}", unused)
        return ir.message("assistant")
    if kind == "system":
        rest = {**(event.model_extra or {}), **(event.args or {}), "message": event.message}
        return _system(rest.pop("content", None), rest, path, losses)
    convert = _legacy_observation if event.action is None else _legacy_action
    message = convert(event, kind, path, losses)
    _count_unsaid(event, message, path, losses)
    return message


def _count_unsaid(event: _LegacyEvent, message: ir.Message, path: str, losses: Losses) -> None:
    """Count the texts of an event that are missing from its message."""
    said = ir.transcript_of([message])
    for name in ("message", "content", "thought"):
        text = as_text(getattr(event, name))
        losses.add(f"{path}.{name}", text if text not in said else None)


def _legacy_observation(event: _LegacyEvent, kind: str, path: str, losses: Losses) -> ir.Message:
    count_unmapped(event, path, losses)
    tool = event.tool or _Metadata()
    extras = event.extras or {}
    losses.add(f"{path}.extras", extras)
    failed = kind == "error" or (exit_code_of(extras) or event.exit_code or 0) > 0
    text = as_text(event.content) or as_text(event.message)
    return ir.message(
        "tool", ir.ToolCallResponse(text, tool.tool_call_id, tool.function_name or kind, failed=failed)
    )


def _legacy_action(event: _LegacyEvent, kind: str, path: str, losses: Losses) -> ir.Message:
    if event.args is None:  # in the oldest files, the arguments are members of the event
        arguments = dict(event.model_extra or {})
    else:
        count_unmapped(event, path, losses)
        arguments = dict(event.args)
    thought = arguments.pop("thought", None) or event.thought
    tool = event.tool or _Metadata()
    if kind == "message":
        text = arguments.pop("content", None) or event.content or event.message
        losses.add(f"{path}.args", arguments)
        return ir.message("user" if event.source == "user" else "assistant", ir.Text(as_text(text)))
    parts: list[ir.Part] = [ir.Text(thought)] if isinstance(thought, str) and thought else []
    if kind == "finish":
        result = arguments.get("final_thought") or event.message
        parts += [ir.Text(result)] if isinstance(result, str) and result and result != thought else []
    if kind != "think" or tool.function_name:
        parts.append(ir.ToolCall(tool.function_name or kind, arguments, tool.tool_call_id))
    return ir.message("assistant", *parts)


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if str(value.get("kind")).endswith(("Event", "Observation", "Condensation", "CondensationRequest")):
        return "timestamp" in value or "id" in value
    if isinstance(value.get("action"), str):
        return True
    has_content = not {"content", "message", "extras"}.isdisjoint(value)  # others' observations are texts
    return has_content and isinstance(value.get("observation"), str)


def _recognises(document: Any) -> bool:
    """Check for events, one of which has a member that others' actions have not, or for the oldest files."""
    events = unwrap(document, "history")
    if not are_all(_is_event, events):
        return False
    is_oldest = isinstance(document, dict) and "instruction" in document
    return is_oldest or any(not _OWN.isdisjoint(event) for _, event in items_of(events))


FORMAT = InputFormat(
    "openhands",
    __doc__,
    "kind source timestamp",
    _recognises,
    _runs,
    is_fragment=lambda line: isinstance(line, dict) and "history" not in line,
    coding_agent=True,
)
