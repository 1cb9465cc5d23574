"""ATIF: Harbor's Agent Trajectory Interchange Format.

Accepts: Agent Trajectory Interchange Format; with ``convert``, also the trajectories of subagents in it, as
    runs of their own, and what Harbor's agents add of failed calls and finish reasons. On the command line,
    the ``result.json`` of Harbor's trial judges the run. NeMo Agent Toolkit's ``workflow_output_atif.json``,
    which its evaluators' files beside it judge.
Source: https://www.harborframework.com/docs/agents/trajectory-format (RFC 0001); the types of ``atif``.
Compared with: the types of ``atif`` 1.8, runs of Harbor 0.26, what its agents for Pi and Claude Code make of
    their sessions, what Kolega Code 0.45.1 writes, and an evaluation of NeMo Agent Toolkit 1.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.endings import ending_by
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.input_format import InputFormat, are_all
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import any_of, at
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    items_of,
    parse_time,
    read,
    read_record,
    text_or_none,
    without,
)
from knowledgepulse_convert.common.rewards import Reward, number_of
from knowledgepulse_convert.common.statuses import is_failure, told_by
from knowledgepulse_convert.common.verdicts import Verdicts
from knowledgepulse_convert.messages.blocks import Block, contents_of, text_of
from knowledgepulse_convert.messages.definitions import definitions_of

NAT_SCORES = "nat_scores"
"""The member of a sample of NeMo Agent Toolkit where the command line puts its evaluators' scores by name."""
HARBOR_RESULT = "harbor_result"
"""The member of a trajectory where the command line puts the ``result.json`` of its trial."""
_SAMPLE = {"item_id": ..., at("trajectory", "schema_version"): ("ATIF",)}
_is_sample = any_of(_SAMPLE)
_CONTENT = "steps[].message[]"
_CONTINUATION = "continuation_index"
"""The number of a trajectory that continues another one with the same id, from a summary of it."""
_ROLES: dict[str, ir.Role] = {"system": "system", "user": "user", "agent": "assistant"}
_FLAGS = {"is_error": True, "tool_result_is_error": True, "success": False}
"""What Harbor's own agents say of a failed call in ``extra``, as do these; Claude Code's, Pi's and others."""
_KOLEGA = "kolega"
"""The member of ``extra`` in which Kolega Code says it."""
_EXIT_CODES = ("exit_code", "exitCode")
_REPEATS = ("tool_invocations", "tool_ancestry")
"""What NeMo Agent Toolkit adds to the calls of a step, in the ``extra`` of it."""
_REASONS = ("stop_reason", "finish_reason")
"""Why the model's answer ended, in the ``extra`` of a step."""


class _ToolCall(InputModel):
    id: str | None = None
    tool_call_id: str | None = None
    function_name: str
    arguments: Any = None


class _Observed(InputModel):
    source_call_id: str | None = None
    content: str | list[Block] | None = None
    extra: dict[str, Any] | None = None


class _Observation(InputModel):
    results: list[_Observed]


class _Step(InputModel):
    step_id: int
    source: str
    timestamp: str | None = None
    message: str | list[Block] = ""
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    observation: _Observation | None = None
    is_copied_context: bool | None = None
    extra: dict[str, Any] | None = None


class _Agent(InputModel):
    name: str
    tool_definitions: list[Any] | None = None
    extra: dict[str, Any] | None = None


class _Subagent(InputModel):
    schema_version: str | None = None
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: _Agent
    steps: list[_Step]
    continued: str | None = Field(default=None, alias="continued_trajectory_ref")
    subagents: list[Any] | None = Field(default=None, alias="subagent_trajectories")


class _Trajectory(_Subagent):
    schema_version: str


class _Verified(InputModel):
    rewards: dict[str, Any] | None = None


class _Exception(InputModel):
    exception_type: str | None = None
    exception_message: str = ""
    occurred_at: str | None = None


class _Phase(InputModel):
    started_at: str | None = None


class _Result(InputModel):
    """What Harbor says of a trial, or of a step of one."""

    task_name: str | None = None
    verifier_result: _Verified | None = None
    exception_info: _Exception | None = None
    verifier: _Phase | None = None
    reward_valid: bool = True

    @property
    def is_verifiers(self) -> bool:
        """Whether the exception is the verifier's, and none of the agent's."""
        raised = parse_time(self.exception_info and self.exception_info.occurred_at)
        began = parse_time(self.verifier and self.verifier.started_at)
        return raised is not None and began is not None and raised >= began


def _runs(document: Any) -> Iterator[ir.Run | ConversionError]:
    """Yield the run of each trajectory of a list, or of a single one, and those of its subagents."""
    for path, value in items_of(document):
        if isinstance(value, dict) and _is_sample(value):
            yield from _sample(value, f"{path}.trajectory".lstrip("."))
            continue
        result = value.get(HARBOR_RESULT) if isinstance(value, dict) else None
        family = _family(value if result is None else without(value, HARBOR_RESULT), path, None)
        for number, run in enumerate(family):
            if number == 0 and result is not None and isinstance(run, ir.Run):
                _judge(run, read(_Result, result, HARBOR_RESULT))
            yield run


def _sample(sample: dict[str, Any], path: str) -> Iterator[ir.Run | ConversionError]:
    """Yield the run of a sample of NeMo Agent Toolkit, whose session's id is that of its item in any run."""
    for number, run in enumerate(_family(without(sample["trajectory"], "session_id"), path, None)):
        if number == 0 and isinstance(run, ir.Run):
            run.task_id = as_text(sample["item_id"])
            run.outcome = ir.RunOutcome.graded(_rewards(sample.get(NAT_SCORES) or {}, run.losses))
            count_others(sample, {"item_id", "trajectory", NAT_SCORES}, "", run.losses)
        yield run


def _judge(run: ir.Run, result: _Result) -> None:
    """Add to a run what the result of its trial says; one that continues elsewhere is not judged."""
    run.task_id = run.task_id or result.task_name
    count_unmapped(result, HARBOR_RESULT, run.losses)
    rewards = (result.verifier_result and result.verifier_result.rewards) or {}
    if "continued_trajectory_ref" in run.losses:
        run.losses.add("rewards of the whole trial", rewards)
        return
    if result.exception_info is not None and not result.is_verifiers:
        run.ending = told_by(result.exception_info.exception_type) or "failed"
        run.losses.add(f"{HARBOR_RESULT}.exception_info", result.exception_info.exception_message)
    if result.reward_valid:
        run.outcome = ir.RunOutcome.graded(_rewards(rewards, run.losses))
    else:
        run.losses.add("rewards that Harbor calls invalid", rewards)


def _rewards(rewards: dict[str, Any], losses: Losses) -> Iterator[Reward]:
    for name, value in rewards.items():
        if (number := number_of(value)) is None:
            losses.add("rewards without a number", {name: value})
        else:
            yield Reward(name, number)


def _family(value: Any, path: str, parent: ir.Run | None) -> Iterator[ir.Run | ConversionError]:
    """Yield the run of a trajectory and the runs of the subagents' trajectories in it."""
    verdicts = Verdicts(value)
    try:
        trajectory, losses = read_record(_Trajectory if parent is None else _Subagent, verdicts.rest, path)
    except ConversionError as error:
        yield error
        return
    run = _run(trajectory, losses)
    run.outcome, run.task_id = verdicts.outcome, verdicts.task_id
    if parent is not None:
        run.parent_id = parent.native_id
        if run.native_id == parent.native_id:  # an id of the session, which all of its agents share
            run.native_id = None
    yield run
    for number, subagent in enumerate(trajectory.subagents or ()):
        yield from _family(subagent, f"{path}.subagent_trajectories[{number}]".lstrip("."), run)


def _run(trajectory: _Subagent, losses: Losses) -> ir.Run:
    messages = [*definitions_of(trajectory.agent.tool_definitions or [], "agent.tool_definitions", losses)]
    ended_at, asked = None, None
    extra, number = dict(trajectory.agent.extra or {}), None
    if isinstance(extra.get(_CONTINUATION), int):
        number = extra.pop(_CONTINUATION)
    losses.add("agent.extra", extra)
    for step in trajectory.steps:
        ended_at = parse_time(step.timestamp) or ended_at
        if step.is_copied_context and step.source == "user" and asked is None:
            asked = list(_messages(step, losses))
        elif step.is_copied_context:
            copied = ir.contents_of(_messages(step, losses))
            losses.add("steps[] copied from another trajectory", copied, is_known=True)
        else:
            messages += _messages(step, losses)
    if asked and any(message.role == "user" for message in messages):
        losses.add("steps[] copied from another trajectory", ir.contents_of(asked), is_known=True)
    elif asked:
        messages = [*asked, *messages]
    called = [part.name for part in ir.parts_in(messages) if isinstance(part, ir.ToolCall)]
    if called and not ending_by(called[-1]) and trajectory.agent.name.startswith("terminus"):
        # It ends with a call; else it was out of time or of turns.
        messages.append(ir.message("assistant", ir.Error(interruption=True)))
    native_id = trajectory.trajectory_id or trajectory.session_id
    if trajectory.continued is not None:  # this run has no end
        losses.add_unknown(
            "continued_trajectory_ref", trajectory.continued, {"content": trajectory.continued}
        )
        messages.append(ir.message("assistant", ir.Error(interruption=True)))
    results = (result for step in trajectory.steps if step.observation for result in step.observation.results)
    told = {
        "failed calls": any(_failure(result.extra) is not None for result in results),
        "finish reasons": any(_reason(step.extra) for step in trajectory.steps),
    }
    return ir.Run(
        messages,
        unrecorded=tuple(name for name, is_told in told.items() if not is_told),
        native_id=native_id if number is None or native_id is None else f"{native_id}/{number}",
        parent_id=None if number is None else native_id,
        ended_at=ended_at,
        agent_id=trajectory.agent.name,
        names=(trajectory.agent.name,),
        losses=losses,
    )


def _messages(step: _Step, losses: Losses) -> Iterator[ir.Message]:
    content = contents_of(step.message, _CONTENT, losses)
    calls = [
        ir.ToolCall(call.function_name, call.arguments, call.tool_call_id or call.id)
        for call in step.tool_calls or ()
    ]
    role = _ROLES.get(step.source, "assistant")
    cut_off = ir.cut_off(_reason(step.extra))
    yield ir.message(role, ir.reasoning(step.reasoning_content), *content, *calls, *cut_off)
    extra = step.extra or {}
    count_others(extra, {*_REASONS, *_REPEATS}, "steps[].extra", losses)
    for name in _REPEATS:
        losses.add("steps[].extra of NeMo", extra.get(name), is_known=True)
    results = step.observation.results if step.observation else []
    ids = [result.source_call_id for result in results]
    if calls and not any(ids):  # Terminus has a screen after several calls
        ids = [call.id for call in (calls if len(calls) == len(ids) else calls[-1:] * len(ids))]
    for result, call_id in zip(results, ids, strict=True):
        text = text_of(result.content, _CONTENT, losses)
        failed = _failure(result.extra) is True
        yield ir.message("tool", ir.ToolCallResponse(text, call_id, failed=failed))
        flags = {*_FLAGS, *_EXIT_CODES, "status", "error"}
        count_others(result.extra or {}, flags, "steps[].observation.results[].extra", losses)


def _failure(extra: dict[str, Any] | None) -> bool | None:
    """Return whether what is added to a result says that its call failed; None if it does not say."""
    given = extra or {}
    own = given.get(_KOLEGA)
    added = given | own if isinstance(own, dict) else given
    told = [added[name] is value for name, value in _FLAGS.items() if name in added]
    told += [added[name] not in (0, None) for name in _EXIT_CODES if name in added]
    told += [is_failure(added["status"])] if "status" in added else []
    told += [bool(added["error"])] if "error" in added else []
    return any(told) if told else None


def _reason(extra: dict[str, Any] | None) -> str | None:
    return next((text for name in _REASONS if (text := text_or_none((extra or {}).get(name)))), None)


_recognises = any_of({"schema_version": ("ATIF",)}, _SAMPLE)

FORMAT = InputFormat(
    "atif", __doc__, "schema_version agent steps", lambda document: are_all(_recognises, document), _runs
)
