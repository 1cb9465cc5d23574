"""Agent Lightning's events of rollouts, a run for each attempt: in a list, or one a line.

What was asked and answered is in the model's requests, which repeat the conversation. The last reward counts,
unless the system filled it in.

Source: https://github.com/microsoft/agent-lightning, ``agentlightning.schemas``.
Compared with: runs of 1.0.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import InputModel, count_others, read, unmapped
from knowledgepulse_convert.common.rewards import Reward, number_of
from knowledgepulse_convert.spans.dialects import attributes_of, runs_of_spans
from knowledgepulse_convert.spans.span import Span

_SECOND = 10**9
_FALLBACK = "fallback"
"""The source of a reward that the system fills in where nobody gave one."""


class _Event(InputModel):
    event_type: str
    rollout_id: str
    attempt_id: str = ""
    timestamp: float = 0.0
    data: dict[str, Any] = Field(default_factory=dict)

    @property
    def attempt(self) -> tuple[str, str]:
        """What the events of a run share."""
        return self.rollout_id, self.attempt_id


class _Request(InputModel):
    model: str | None = None
    request: dict[str, Any] = Field(default_factory=dict)
    response: Any = None
    latency_ms: float | None = None
    status: str | None = None
    finish_reason: str | None = None


_is_event = any_of({"event_type": str, "rollout_id": str, "data": dict})


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    values = document if isinstance(document, list) else [document]
    events = [read(_Event, value, f"[{number}]") for number, value in enumerate(values)]
    for (rollout, attempt), own in groupby(sorted(events, key=lambda e: e.attempt), lambda e: e.attempt):
        yield from _attempt(list(own), f"{rollout}/{attempt}")


def _attempt(events: list[_Event], native_id: str) -> Iterator[ir.Run | ConversionError]:
    requests = [event for event in events if event.event_type == "model_request"]
    losses, times = Losses(), [int(event.timestamp * _SECOND) for event in events]
    root = Span(native_id, native_id, None, "", min(times), max(times), attributes_of("agent", None, None))
    calls = [_call(event, number, native_id) for number, event in enumerate(requests)]
    rewards = list(_rewards(events, losses))
    for event in events:
        losses.merge(unmapped(event, "[]"))
        if event.event_type not in ("model_request", "reward"):
            losses.add_unknown(f"events of type {event.event_type}", event.data)
    for run in runs_of_spans([root, *calls]):
        if isinstance(run, ir.Run):
            run.native_id, run.span = native_id, None
            run.outcome = ir.RunOutcome.graded(rewards[-1:])
            for earlier in rewards[:-1]:
                losses.add("rewards before the last", [earlier.value])
            models = (event.data.get("model") for event in requests)
            run.models = tuple(dict.fromkeys(model for model in models if isinstance(model, str)))
            run.losses.merge(losses)
        yield run


def _call(event: _Event, number: int, native_id: str) -> Span:
    request = read(_Request, event.data, "data")
    end = int(event.timestamp * _SECOND)
    return Span(
        trace_id=native_id,
        id=f"{native_id}/{number}",
        parent_id=native_id,
        name=request.model or "",
        attributes=attributes_of("model", request.request, request.response),
        start=end - int((request.latency_ms or 0) * 1e6),
        end=end,
        failed=request.status == "error",
        losses=unmapped(request, "data"),
    )


def _rewards(events: list[_Event], losses: Losses) -> Iterator[Reward]:
    for event in events:
        if event.event_type != "reward":
            continue
        number = number_of(event.data.get("value"))
        if number is None or event.data.get("source") == _FALLBACK:
            losses.add("rewards that nobody gave", event.data)
        else:
            count_others(event.data, {"value", "source"}, "data", losses)
            yield Reward("reward", number)


FORMAT = InputFormat(
    "agent_lightning",
    __doc__,
    "event_type rollout_id attempt_id data",
    lambda document: are_all(_is_event, document),
    _runs,
    is_fragment=_is_event,
    unrecorded=("failed calls",),
)
