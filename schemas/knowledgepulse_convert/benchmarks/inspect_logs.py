"""Inspect's evaluation logs, a run for each sample; on the command line also ``.eval`` archives.

An ``.eval`` archive has the same content, a file for each sample; the command line reads it. Each epoch of a
sample is a run, and of the tries of one, the last. Scores are numbers as ``value_to_float`` has them.

Source: https://inspect.aisi.org.uk/eval-logs.html; the types of ``inspect_ai.log``.
Compared with: public files with version 2 of the logs, and runs of 0.3.285.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from pydantic import Field

from knowledgepulse_convert.benchmarks.inspect_handoffs import as_it_was
from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import (
    InputModel,
    count_others,
    count_unmapped,
    each,
    parse_time,
    read,
    without,
)
from knowledgepulse_convert.common.rewards import Reward, number_of
from knowledgepulse_convert.messages import openai
from knowledgepulse_convert.messages.definitions import definitions_of

_ATTACHMENT = "attachment://"
_SCORERS = "scorers"
"""The span of the scorers; an error in it is none of the agent's."""


class _Failure(InputModel):
    message: str = ""


class _Score(InputModel):
    value: Any = None


class _Sample(InputModel):
    id: int | str
    epoch: int
    input: str | list[Any] = ""
    messages: list[Any] = Field(default_factory=list)
    scores: dict[str, Any] | None = None
    error: _Failure | None = None
    error_retries: list[Any] | None = None  # the errors of earlier tries
    invalidation: Any = None
    limit: dict[str, Any] | None = None
    completed_at: str | None = None
    uuid: str | None = None


class _Eval(InputModel):
    task: str
    task_id: str = ""
    run_id: str = ""
    eval_id: str | None = None
    created: str | None = None
    solver: str | None = None


class _Stats(InputModel):
    completed_at: str | None = None


class _Log(InputModel):
    eval: _Eval
    stats: _Stats = Field(default_factory=_Stats)
    samples: list[dict[str, Any]] | None = None


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    log = read(_Log, document)
    samples = log.samples or []
    last = {repr((sample.get("id"), sample.get("epoch"))): n for n, sample in enumerate(samples)}
    for number in sorted(last.values()):
        yield from each(samples[number], partial(_run, log, f"samples[{number}]"))


def _run(log: _Log, path: str, value: dict[str, Any], _: str) -> ir.Run:
    sample = read(_Sample, value, path)
    losses = Losses()
    count_unmapped(log.model_copy(update={"samples": None}), "", losses)
    count_unmapped(sample, "samples[]", losses)
    evaluation, events, attachments = log.eval, _events(value), value.get("attachments")
    told = as_it_was(sample.messages, events, partial(_resolved, attachments=attachments), losses)
    messages = messages_of(told, f"{path}.messages", losses)
    inputs = list(_inputs(sample.input))
    if inputs and not any(message.role == "user" for message in messages):
        messages.insert(0, ir.message("user", ir.Text(inputs.pop(0))))
    for text in _untold(inputs, messages):
        losses.add("samples[].input", text)
    match value.get("output"):
        case {"choices": [{"stop_reason": reason}, *_]}:
            messages += ir.end_of(reason)
    failed = sample.error is not None and not _is_scored(events)
    if sample.error is not None and failed:
        messages.append(ir.message("assistant", ir.Error(sample.error.message)))
    elif sample.error is not None:
        losses.add("samples[].error of a scorer", sample.error.message)
    losses.add("samples[].limit", sample.limit)
    losses.add("samples[].error_retries", sample.error_retries)
    losses.add("samples[].invalidation", sample.invalidation)
    native_id = evaluation.eval_id or f"{evaluation.run_id}/{evaluation.task_id}"
    last = events[-1].get("timestamp") if events else None
    times = map(parse_time, (sample.completed_at, last, log.stats.completed_at, evaluation.created))
    return ir.Run(
        [*_tools(events, attachments, losses), *messages],
        native_id=sample.uuid or f"{native_id}/{sample.id}/{sample.epoch}",
        ended_at=next((time for time in times if time is not None), None),
        ending="failed" if failed else None if sample.limit is None else "cut_off",
        agent_id=evaluation.solver or evaluation.task,
        names=(evaluation.task, *([evaluation.solver] if evaluation.solver else [])),
        outcome=_outcome({} if sample.invalidation else sample.scores or {}, losses),
        task_id=f"{evaluation.task}/{sample.id}",
        losses=losses,
    )


def messages_of(items: list[Any], path: str, losses: Losses) -> list[ir.Message]:
    """Convert messages, which are OpenAI's except for flat tool calls and errors in tools' messages.

    Raises:
        ConversionError: an item is not a message.
    """
    messages = openai.messages_of([_renamed(message) for message in items], path, losses, "messages[]")
    return [_failed(message, value, losses) for message, value in zip(messages, items, strict=True)]


def _renamed(value: Any) -> Any:
    """Return a message in OpenAI's form."""
    if not isinstance(value, dict):
        return value
    renamed = without(value, "function") | {"name": value.get("function")}
    if isinstance(value.get("tool_calls"), list):
        renamed["tool_calls"] = [openai.nested_function(call, "function") for call in value["tool_calls"]]
    return renamed


def _failed(message: ir.Message, value: dict[str, Any], losses: Losses) -> ir.Message:
    """Return a message with the failure of the tool whose response it is."""
    losses.add("messages[].id", value.get("id"))
    match message.parts, value.get("error"):
        case [ir.ToolCallResponse() as part], {"message": str(problem), **rest}:
            count_others(rest, set(), "messages[].error", losses)
            texts = [part.response, *([] if problem in part.response else [problem])]
            text = "\n".join(text for text in texts if text)
            return replace(message, parts=(replace(part, response=text, failed=True),))
    return message


def _tools(events: list[dict[str, Any]], attachments: Any, losses: Losses) -> tuple[ir.Message, ...]:
    """Return the definitions of the tools of the first model call that has any."""
    tools: Any = next(
        (event["tools"] for event in events if event.get("event") == "model" and event.get("tools")), []
    )
    return definitions_of(_resolved(tools, attachments), "samples[].events[].tools", losses)


def _events(value: dict[str, Any]) -> list[dict[str, Any]]:
    transcript = value.get("transcript")  # its name in early logs
    events = transcript.get("events") if isinstance(transcript, dict) else value.get("events")
    return [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []


def _is_scored(events: list[dict[str, Any]]) -> bool:
    """Check whether the scorers have begun, in a span or, in logs of 2024, a step."""
    return any(
        event.get("type") in (_SCORERS, "scorer") or event.get("name") == _SCORERS
        for event in events
        if event.get("event") in ("span_begin", "step")
    )


def _outcome(scores: dict[str, Any], losses: Losses) -> ir.RunOutcome:
    """Return the numbers of the scores, and what they say together."""
    rewards = []
    for name, value in scores.items():
        score = read(_Score, value, "samples[].scores[]") if isinstance(value, dict) else _Score(value=value)
        count_unmapped(score, "samples[].scores[]", losses)
        for own, member in _members(name, score.value):
            if (number := number_of(member)) is None:
                losses.add("samples[].scores[] without a number", {own: member})
            else:
                rewards.append(Reward(own, number))
    return ir.RunOutcome.graded(rewards)


def _members(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the scores of a scorer with their names: a dictionary or a list has several."""
    match value:
        case dict():
            yield from ((f"{name}/{own}", member) for own, member in value.items())
        case list():
            yield from ((f"{name}/{number}", member) for number, member in enumerate(value))
        case _:
            yield name, value


def _inputs(value: str | list[Any]) -> Iterator[str]:
    for item in [{"role": "user", "content": value}] if isinstance(value, str) else value:
        match item:
            case {"role": "user", "content": str(text)}:
                yield text


_TEMPLATES = 8
"""Inputs that are searched for within all texts: each takes as long as the texts are."""


def _untold(inputs: Iterable[str], messages: list[ir.Message]) -> Iterator[str]:
    """Yield the inputs that no message tells, alone or, as templates have a few, within its text."""
    texts = [ir.join_texts(message.parts) for message in messages]
    known, transcript = set(texts), "\n".join(texts)
    others = (text for text in inputs if text not in known)
    yield from (text for text in islice(others, _TEMPLATES) if text not in transcript)
    yield from others


def _resolved(value: Any, attachments: Any) -> Any:
    """Replace the references to long texts of an event, ``attachment://`` and a hash, with the texts."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT) and isinstance(attachments, dict):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, list):
        return [_resolved(member, attachments) for member in value]
    if isinstance(value, dict):
        return {name: _resolved(member, attachments) for name, member in value.items()}
    return value


FORMAT = InputFormat(
    "inspect", __doc__, "version eval plan", any_of({"version": ..., "eval": dict, "plan": ...}), _runs
)
