"""AgentDojo's run logs.

Its messages are those of Inspect under other names, and are converted as such.

Source: https://github.com/ethz-spylab/agentdojo, ``agentdojo.types`` and ``agentdojo.logging``.
Compared with: public files of 2026.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.benchmarks import inspect_logs
from knowledgepulse_convert.common.input_format import InputFormat, of_records
from knowledgepulse_convert.common.ir import Error, Message, Run, RunOutcome
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import InputModel, parse_time, read_record, without

_NAMES = ("pipeline_name", "suite_name", "user_task_id", "attack_type", "injection_task_id")
_TASK = ("suite_name", "user_task_id", "injection_task_id")
_MEMBERS = {"text": "text", "thinking": "reasoning"}


class _Log(InputModel):
    suite_name: str
    pipeline_name: str
    messages: list[dict[str, Any]]
    run_id: str | None = None
    error: str | None = None
    utility: bool | None = None
    evaluation_timestamp: str | None = None


def _run(document: Any, path: str) -> Run:
    log, losses = read_record(_Log, document, path)
    messages = inspect_logs.messages_of(list(map(_renamed, log.messages)), "messages", losses)
    if log.error is not None:
        messages.append(Message("assistant", (Error(log.error),)))
    return Run(
        messages,
        native_id=log.run_id or _id_of(document),
        ended_at=parse_time(log.evaluation_timestamp),
        ending=None if log.error is None else "failed",
        agent_id=log.pipeline_name,
        names=(log.pipeline_name, log.suite_name),
        outcome=RunOutcome(success=log.utility),
        task_id=_task_of(document),
        losses=losses,
    )


def _id_of(document: dict[str, Any]) -> str | None:
    """Return a log's path below ``runs`` with its time, as several runs may have the same path."""
    time = document.get("evaluation_timestamp")
    return f"{'/'.join(str(document.get(name)) for name in _NAMES)} {time}" if time else None


def _task_of(document: dict[str, Any]) -> str | None:
    """Return the suite's task, and what is injected into it if anything is."""
    names = [document.get(name) for name in _TASK]
    return "/".join(str(name) for name in names if name is not None) if names[1] is not None else None


def _renamed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in Inspect's form."""
    renamed = {**message, "content": message.get("content") or ""}
    if isinstance(renamed["content"], list):
        renamed["content"] = [_renamed_part(part) for part in renamed["content"]]
    match message.get("tool_calls"):
        case [*calls]:
            renamed["tool_calls"] = [_renamed_call(call) for call in calls]
    match message.get("tool_call"):
        case {"function": function, **rest}:
            renamed = {**without(renamed, "tool_call"), "function": function, "call": rest}
    if isinstance(message.get("error"), str):
        renamed["error"] = {"message": message["error"]}
    return renamed


def _renamed_part(part: Any) -> Any:
    match part:
        case {"type": "text" | "thinking" as kind, "content": content, **rest}:
            return {**rest, "type": _MEMBERS[kind], _MEMBERS[kind]: content}
    return part


def _renamed_call(call: Any) -> Any:
    match call:
        case {"args": arguments, **rest}:
            return {**rest, "arguments": arguments}
    return call


FORMAT = InputFormat(
    "agentdojo",
    __doc__,
    "suite_name pipeline_name messages",
    *of_records(any_of({"suite_name": ..., "pipeline_name": ..., "messages": ...}), _run),
)
