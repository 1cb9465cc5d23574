"""verifiers' ``traces.jsonl``: episodes with their traces, a run for each trace.

Each line is an episode. A trace's messages are nodes of a graph, each once; a reward of weight 0 is only a
number.

Source: https://github.com/PrimeIntellect-ai/verifiers, ``verifiers.v1.trace`` and ``verifiers.v1.episode``.
Compared with: runs of 0.4.0.
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
    count_unmapped,
    each,
    items_of,
    parse_time,
    read,
    read_record,
)
from knowledgepulse_convert.common.rewards import Reward, number_of
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_convert.messages import openai
from knowledgepulse_convert.messages.definitions import definitions_of


class _Env(InputModel):
    id: str | None = None
    name: str | None = None


class _Task(InputModel):
    type: str | None = None
    key: str | None = None
    hash: str | None = None
    data: Any = None


class _AgentConfig(InputModel):
    model: str | None = None


class _Agent(InputModel):
    name: str | None = None
    config: _AgentConfig = Field(default_factory=_AgentConfig)


class _Node(InputModel):
    message: dict[str, Any]
    timestamp: float | None = None


class _Error(InputModel):
    type: str | None = None
    message: str = ""


class _Call(InputModel):
    finish_reason: str | None = None


class _Reward(InputModel):
    score: Any = None
    weight: float | None = None


class _Trace(InputModel):
    id: str | None = None
    task: _Task = Field(default_factory=_Task)
    agent: _Agent = Field(default_factory=_Agent)
    tools: list[Any] = Field(default_factory=list)
    nodes: list[_Node]
    calls: list[_Call] = Field(default_factory=list)
    rewards: dict[str, Any] = Field(default_factory=dict)
    is_completed: bool = True
    stop_condition: str | None = None
    errors: list[_Error] = Field(default_factory=list)


class _Episode(InputModel):
    env: _Env = Field(default_factory=_Env)
    traces: list[Any] = Field(default_factory=list)


_is_trace = any_of({"nodes": list, "rewards": dict, "calls": list})
_is_episode = any_of({"traces": list, "task": dict, "env": dict})


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    for path, value in items_of(document):
        if _is_trace(value):
            yield from each([value], partial(_run, names=()))
            continue
        episode = read(_Episode, value, path)
        names = tuple(name for name in (episode.env.name, episode.env.id) if name)
        yield from runs_within(value, "traces", partial(each, convert=partial(_run, names=names)))


def _run(value: Any, path: str, *, names: tuple[str, ...]) -> ir.Run:
    trace, losses = read_record(_Trace, value, path)
    messages = [*definitions_of(trace.tools, "tools", losses)]
    messages += openai.messages_of([node.message for node in trace.nodes], f"{path}.nodes", losses, "nodes[]")
    if trace.calls:
        messages += ir.end_of(trace.calls[-1].finish_reason)
    messages += [ir.message("assistant", ir.Error(error.message)) for error in trace.errors]
    losses.add("task.data", trace.task.data)
    agent = trace.agent
    return ir.Run(
        messages,
        native_id=trace.id,
        ended_at=parse_time(max((node.timestamp or 0 for node in trace.nodes), default=0) or None),
        ending=told_by(trace.stop_condition) or (None if trace.is_completed else "cut_off"),
        agent_id=agent.name,
        names=tuple(dict.fromkeys([*([agent.name] if agent.name else []), *names])),
        models=(agent.config.model,) if agent.config.model else (),
        outcome=ir.RunOutcome.graded(_rewards(trace.rewards, losses)),
        task_id=trace.task.key or trace.task.hash,
        losses=losses,
    )


def _rewards(rewards: dict[str, Any], losses: Losses) -> Iterator[Reward]:
    for name, value in rewards.items():
        reward = read(_Reward, value, f"rewards.{name}") if isinstance(value, dict) else _Reward(score=value)
        count_unmapped(reward, "rewards", losses)
        if (number := number_of(reward.score)) is None:
            losses.add("rewards without a number", {name: reward.score})
        else:
            yield Reward(name, number, weight=number_of(reward.weight))


FORMAT = InputFormat(
    "verifiers",
    __doc__,
    "env task traces nodes rewards",
    lambda document: are_all(lambda value: _is_trace(value) or _is_episode(value), document),
    _runs,
    unrecorded=("failed calls",),
)
