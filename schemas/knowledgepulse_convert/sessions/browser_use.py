"""browser-use's histories (``AgentHistoryList``), which do not hold the task.

The last action says whether the run succeeded, which is its outcome; without one, the run ended early.

Accepts: browser-use's ``AgentHistoryList``, which does not hold the task: give it with ``--objective``.
Source: https://github.com/browser-use/browser-use, ``browser_use/agent/views.py``.
Compared with: public files of 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.input_format import InputFormat, are_all, of_records
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    parse_time,
    read_record,
)

_SAID = ("evaluation_previous_goal", "memory", "next_goal")


class _Result(InputModel):
    is_done: bool | None = None
    success: bool | None = None
    error: str | None = None
    extracted_content: str | None = None


class _Metadata(InputModel):
    step_end_time: float | None = None


class _Step(InputModel):
    model_output: dict[str, Any] | None = None
    result: list[_Result]
    state: Any = None
    metadata: _Metadata | None = None


class _History(InputModel):
    history: list[_Step]


def _run_of(document: Any, path: str) -> ir.Run:
    log, losses = read_record(_History, document, path)
    run = ir.Run([], ending="cut_off", losses=losses)
    for step in log.history:
        losses.add("history[].state", step.state)
        run.messages += _messages(step, losses)
        run.ended_at = parse_time(step.metadata and step.metadata.step_end_time) or run.ended_at
        for result in step.result:
            if result.is_done:
                run.ending, run.outcome = "answered", ir.RunOutcome(result.success)
    return run


def _messages(step: _Step, losses: Losses) -> Iterator[ir.Message]:
    output = dict(step.model_output or {})
    actions = output.pop("action", None) or []
    output |= output.pop("current_state", None) or {}  # of versions before 0.3
    count_others(output, {"thinking", *_SAID}, "history[].model_output", losses)
    said = "\n".join(text for name in _SAID if (text := as_text(output.get(name))))
    yield ir.message(
        "assistant", ir.reasoning(as_text(output.get("thinking"))), ir.Text(said) if said else None
    )
    for action, result in zip_longest(actions, step.result):
        called, *others = action.items() if isinstance(action, dict) and action else (None,)
        count_others(dict(others), set(), "history[].model_output.action[]", losses)
        text = "\n".join(filter(None, [result.extracted_content, result.error])) if result else ""
        if called is None:
            yield ir.message("assistant", ir.Error(text) if text else None)
            continue
        yield ir.message("assistant", ir.ToolCall(*called))
        if result is not None and result.is_done:
            yield ir.message("assistant", ir.Text(text))
        elif result is not None:
            yield ir.message("tool", ir.ToolCallResponse(text, failed=bool(result.error)))


_is_step = any_of({"model_output": ..., "result": list})


FORMAT = InputFormat(
    "browser_use",
    __doc__,
    "history model_output result",
    *of_records(lambda value: isinstance(value, dict) and are_all(_is_step, value.get("history")), _run_of),
)
