"""ART's trajectories and groups of them, also as rows of its Parquet files.

ART leaves out what has its default, so that a trajectory without a reward has the reward 0.

Accepts: ART's trajectories and groups of them, also as rows of its Parquet files; what it captures of chat
    completions, and of OpenAI's responses and Anthropic's messages.
Source: https://github.com/OpenPipe/ART, ``art.trajectories`` and ``art.utils.trajectory_logging``.
Compared with: files of 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all, runs_within
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import (
    InputModel,
    count_others,
    each,
    items_of,
    parse_json,
    parse_time,
    read_record,
    text_or_none,
    without,
)
from knowledgepulse_convert.common.verdicts import Verdicts
from knowledgepulse_convert.messages import openai
from knowledgepulse_convert.messages.definitions import definitions_of
from knowledgepulse_convert.spans.dialects import attributes_of, runs_of_spans
from knowledgepulse_convert.spans.span import Span

_TRAJECTORY = "trajectory_json"
_ROOT = "trajectory"
_OF_ROW = ("format_version", "group_index", "trajectory_index", "group_json", "messages", _TRAJECTORY)
"""Members of a row that its trajectory has, too, or that are of the file."""


class _Exchange(InputModel):
    start_time: str | None = None
    end_time: str | None = None
    request: dict[str, Any]
    response: dict[str, Any]

    def span(self, number: int) -> Span:
        start, end = map(_nanoseconds, (self.start_time, self.end_time))
        attributes = attributes_of("model", self.request, self.response)
        return Span(_ROOT, str(number), _ROOT, "", start, end, attributes)


class _Exchanges(InputModel):
    chat_completions: list[_Exchange] = Field(default_factory=list)
    responses: list[_Exchange] = Field(default_factory=list)
    messages: list[_Exchange] = Field(default_factory=list)
    completions: Any = None

    @property
    def all(self) -> list[_Exchange]:
        """Those that hold messages."""
        return [*self.chat_completions, *self.responses, *self.messages]


class _Trajectory(InputModel):
    messages_and_choices: list[Any] = Field(default_factory=list)
    exchanges: _Exchanges = Field(default_factory=_Exchanges)
    tools: Any = None
    metadata: Any = None


_is_trajectory = any_of({"messages_and_choices": list}, {"exchanges": dict})
_is_group = any_of({"trajectories": list})
_is_row = any_of({_TRAJECTORY: str, "group_json": ...})


def _recognises(value: Any) -> bool:
    if _is_group(value):
        return are_all(_is_trajectory, value["trajectories"])
    return _is_trajectory(value) or _is_row(value)


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    for path, value in items_of(document):
        if _is_group(value):
            yield from runs_within(value, "trajectories", partial(each, convert=_run))
        else:
            try:
                yield _run(_of_row(value), path)
            except ConversionError as error:
                yield error


def _of_row(value: Any) -> Any:
    """Return the trajectory of a row, with what the row has besides."""
    trajectory = parse_json(value.get(_TRAJECTORY)) if isinstance(value, dict) else None
    if not isinstance(trajectory, dict):
        return value
    others = {name: parse_json(member) for name, member in without(value, *_OF_ROW).items()}
    return {**{name: member for name, member in others.items() if member is not None}, **trajectory}


def _run(value: Any, path: str) -> ir.Run:
    verdicts = Verdicts({"reward": 0.0, **value} if isinstance(value, dict) else value)
    trajectory, losses = read_record(_Trajectory, verdicts.rest, path)
    metadata = trajectory.metadata if isinstance(trajectory.metadata, dict) else {}
    losses.add("metadata", without(metadata, "task"))
    exchanges = trajectory.exchanges.all
    if not exchanges and trajectory.exchanges.completions:
        raise ConversionError(
            f"{path}.exchanges.completions: texts, in which no messages are told; convert the trajectory "
            "with the agent's messages as its `messages_and_choices`".lstrip(".")
        )
    run = _captured(exchanges) if exchanges else ir.Run(_messages(trajectory, path, losses))
    run.outcome = verdicts.outcome
    run.task_id = verdicts.task_id or text_or_none(metadata.get("task"))
    run.losses.merge(losses)
    return run


def _messages(trajectory: _Trajectory, path: str, losses: Losses) -> list[ir.Message]:
    items = trajectory.messages_and_choices
    messages = [*definitions_of(trajectory.tools or [], "tools", losses)]
    told = [item["message"] if _is_choice(item) else item for item in items]
    for choice in filter(_is_choice, items):
        count_others(choice, {"message", "finish_reason", "index"}, "messages_and_choices[]", losses)
    messages += openai.messages_of(told, f"{path}.messages_and_choices".lstrip("."), losses, "messages[]")
    if items and _is_choice(items[-1]):
        messages += ir.end_of(items[-1].get("finish_reason"))
    return messages


def _captured(exchanges: list[_Exchange]) -> ir.Run:
    """Return the run of calls of models, each of which repeats the conversation so far."""
    calls = [exchange.span(number) for number, exchange in enumerate(exchanges)]
    first, last = min(call.start for call in calls), max(call.end for call in calls)
    root = Span(_ROOT, _ROOT, None, "", first, last, attributes_of("agent", None, None))
    [run] = runs_of_spans([root, *calls])
    if isinstance(run, ConversionError):
        raise run
    run.native_id, run.span = None, None
    names = (exchange.request.get("model") or exchange.response.get("model") for exchange in exchanges)
    run.models = tuple(dict.fromkeys(name for name in names if isinstance(name, str)))
    return run


def _nanoseconds(text: str | None) -> int:
    moment = parse_time(text)
    return 0 if moment is None else round(moment.timestamp() * 1e9)


def _is_choice(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("message"), dict)


FORMAT = InputFormat(
    "art",
    __doc__,
    "messages_and_choices exchanges reward metrics metadata",
    lambda document: are_all(_recognises, document),
    _runs,
    unrecorded=("failed calls",),
)
