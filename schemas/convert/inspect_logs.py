"""Inspect's evaluation logs: a run for each sample; its scores are the labels.

An ``.eval`` archive has the same content, a file for each sample; the command line reads it.

Source: https://inspect.aisi.org.uk/eval-logs.html; the types of ``inspect_ai.log``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pydantic import Field

from knowledgepulse_schemas.convert import hub
from knowledgepulse_schemas.convert.contents import Content, parts_of
from knowledgepulse_schemas.convert.definitions import definitions_of
from knowledgepulse_schemas.convert.errors import ConversionError
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.reading import SourceModel, count_unread, each, parse_time, read
from knowledgepulse_schemas.convert.source import Source

NAME = "inspect"

_ATTACHMENT = "attachment://"
_VERDICTS = {"C": True, "I": False, "N": False, 1: True, 0: False}
"""The values of scores that judge the whole sample: correct, incorrect, no answer; others are partial."""


class _Content(Content):
    reasoning: str | None = None


class _Called(SourceModel):
    id: str | None = None
    function: str
    arguments: Any = None


class _Failure(SourceModel):
    message: str = ""


class _Message(SourceModel):
    role: str
    content: str | list[_Content]
    tool_calls: list[_Called] | None = None
    tool_call_id: str | None = None
    function: str | None = None
    error: _Failure | None = None


class _Score(SourceModel):
    value: Any = None


class _Sample(SourceModel):
    id: int | str
    epoch: int
    input: str | list[Any] = ""
    messages: list[Any] = Field(default_factory=list)
    scores: dict[str, Any] | None = None
    error: _Failure | None = None
    limit: dict[str, Any] | None = None
    completed_at: str | None = None
    uuid: str | None = None


class _Eval(SourceModel):
    task: str
    task_id: str = ""
    run_id: str = ""
    eval_id: str | None = None
    created: str | None = None
    solver: str | None = None


class _Stats(SourceModel):
    completed_at: str | None = None


class _Log(SourceModel):
    eval: _Eval
    stats: _Stats = Field(default_factory=_Stats)
    samples: list[dict[str, Any]] | None = None


def _recognises(document: Any) -> bool:
    if not isinstance(document, dict) or not {"version", "eval", "plan"} <= document.keys():
        return False
    return isinstance(document["eval"], dict)


def _runs(document: Any) -> Iterator[hub.Run | ConversionError]:
    log = read(_Log, document)
    yield from each(log.samples or [], lambda sample, path: _run(log, sample, f"samples{path}"))


def _run(log: _Log, value: dict[str, Any], path: str) -> hub.Run:
    sample = read(_Sample, value, path)
    losses = Losses()
    count_unread(log.model_copy(update={"samples": None}), "", losses)
    count_unread(sample, "samples[]", losses)
    converted = messages_of(sample.messages, f"{path}.messages", losses)
    transcript = "\n".join(hub.join_texts(message.parts) for message in converted)
    for text in _inputs(sample.input):
        if not any(message.role == "user" for message in converted):
            converted.insert(0, hub.Message("user", (hub.Text(text),)))
        elif text not in transcript:
            losses.add("samples[].input", text)
    output = value.get("output")
    converted += [hub.Message("assistant", (error,)) for error in hub.cut_off(_stop_reason(output))]
    if sample.error is not None:
        converted.append(hub.Message("assistant", (hub.Error(sample.error.message),)))
    losses.add("samples[].limit", sample.limit)
    return hub.Run(
        NAME,
        [*_tools(value, losses), *converted],
        native_id=sample.uuid or "/".join(map(str, (_id_of(log.eval), sample.id, sample.epoch))),
        ended_at=_ended_at(log, sample, value),
        ending="without_error" if sample.error is None and sample.limit is None else "failed",
        agent_id=log.eval.solver or log.eval.task,
        names=(log.eval.task, *([log.eval.solver] if log.eval.solver else [])),
        labels=_labels(sample.scores or {}, losses),
        losses=losses,
    )


def messages_of(items: list[Any], path: str, losses: Losses) -> list[hub.Message]:
    """Convert messages.

    Raises:
        ConversionError: an item is not a message.
    """
    messages = []
    for number, value in enumerate(items):
        message = read(_Message, value, f"{path}[{number}]")
        count_unread(message, "messages[]", losses)
        messages.append(_message(message, f"{path}[{number}]", losses))
    return messages


def _id_of(evaluation: _Eval) -> str:
    return evaluation.eval_id or f"{evaluation.run_id}/{evaluation.task_id}"


def _message(message: _Message, path: str, losses: Losses) -> hub.Message:
    role = hub.role_of(message.role, path)
    parts = list(_parts(message.content, losses))
    if role == "tool":
        texts = [hub.join_texts(parts)]
        if message.error is not None and message.error.message not in texts[0]:
            texts.append(message.error.message)
        text = "\n".join(one for one in texts if one)
        failed = message.error is not None
        return hub.Message(
            role, (hub.ToolCallResponse(text, message.tool_call_id, message.function, failed=failed),)
        )
    parts += [hub.ToolCall(one.function, one.arguments, one.id) for one in message.tool_calls or ()]
    return hub.Message(role, tuple(parts))


def _parts(content: str | list[_Content], losses: Losses) -> Iterator[hub.Part]:
    for part in [content] if isinstance(content, str) else content:
        if isinstance(part, _Content) and part.type == "reasoning":
            yield hub.Reasoning(part.reasoning or "")
        else:
            yield from parts_of([part], "messages[].content", losses)


def _tools(value: dict[str, Any], losses: Losses) -> tuple[hub.Message, ...]:
    """Return the definitions of the tools of the first model call that has any."""
    for event in _events(value):
        if event.get("event") == "model" and event.get("tools"):
            tools = _resolved(event["tools"], value.get("attachments"))
            return definitions_of(tools, "samples[].events[].tools", losses)
    return ()


def _events(value: dict[str, Any]) -> list[dict[str, Any]]:
    transcript = value.get("transcript")  # its name in early logs
    events = transcript.get("events") if isinstance(transcript, dict) else value.get("events")
    return [one for one in events if isinstance(one, dict)] if isinstance(events, list) else []


def _ended_at(log: _Log, sample: _Sample, value: dict[str, Any]) -> datetime | None:
    events = _events(value)
    times = (
        sample.completed_at,
        events[-1].get("timestamp") if events else None,
        log.stats.completed_at,
        log.eval.created,
    )
    return next((moment for time in times if (moment := parse_time(time)) is not None), None)


def _labels(scores: dict[str, Any], losses: Losses) -> hub.Labels:
    """Return the verdict of the scores, if all have one and the same."""
    verdicts = set()
    for value in scores.values():
        score = read(_Score, value, "samples[].scores[]") if isinstance(value, dict) else _Score(value=value)
        count_unread(score, "samples[].scores[]", losses)
        is_scalar = isinstance(score.value, str | int | float)
        verdicts.add(_VERDICTS.get(score.value) if is_scalar else None)
    if len(verdicts) == 1 and (verdict := verdicts.pop()) is not None:
        return hub.Labels(success=verdict)
    losses.add("samples[].scores without a common verdict", scores)
    return hub.Labels()


def _inputs(value: str | list[Any]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        return
    for one in value:
        if isinstance(one, dict) and one.get("role") == "user" and isinstance(one.get("content"), str):
            yield one["content"]


def _stop_reason(output: Any) -> Any:
    match output:
        case {"choices": [{"stop_reason": reason}, *_]}:
            return reason
    return None


def _resolved(value: Any, attachments: Any) -> Any:
    """Replace what stands for a long text of an event, ``attachment://`` and its hash, by the text."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT) and isinstance(attachments, dict):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, list):
        return [_resolved(one, attachments) for one in value]
    if isinstance(value, dict):
        return {name: _resolved(one, attachments) for name, one in value.items()}
    return value


SOURCE = Source(NAME, "version eval plan", _recognises, _runs)
