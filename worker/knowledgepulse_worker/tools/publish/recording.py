"""Traces of agents without instrumentation: a `with` block for a run, and one for each call of a tool."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from knowledgepulse_convert import ConversionError, Options, RunOutcome
from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.trace import to_trace
from knowledgepulse_schemas.trace import PrivacyLevel, Visibility
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.record_key import KeyBy
from knowledgepulse_worker.tools.publish.delivery import Delivery

FRAMEWORK = "record"
"""The framework of traces that are recorded here."""


class Recording:
    """A run of an agent, from the beginning of a `with` or `async with` block to its end.

    Its methods may be called from several threads and tasks. See :func:`record`.
    """

    def __init__(self, run: ir.Run, options: Options, delivery: Delivery) -> None:
        self._run, self._options, self._delivery = run, options, delivery
        self._messages = list(run.messages)
        self._calls = count(1)

    def thought(self, text: str) -> None:
        """Record what the agent thinks, or tells on its way."""
        self._add("assistant", ir.Reasoning(text))

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> RecordedCall:
        """Begin a call of a tool: a `with` or `async with` block, which ends with the call.

        Args:
            tool: the tool's name; ``mcp__server__tool`` is a tool of an MCP server.
            arguments: what it is called with.
        """
        told = None if arguments is None else _text_of(dict(arguments))
        return RecordedCall(self._add, ir.ToolCall(tool, told, str(next(self._calls))))

    def answer(self, text: str) -> None:
        """Record the agent's answer, which is the result of the run; a later one takes its place."""
        self._add("assistant", ir.Text(text))

    def judge(self, *, success: bool | None = None, confidence: float | None = None) -> None:
        """Record whether the run succeeded, as somebody found out, or how sure the agent is, from 0 to 1."""
        self._run.outcome = RunOutcome(success, confidence).over(self._run.outcome)

    def _add(self, role: ir.Role, part: ir.Part) -> None:
        self._messages.append(ir.message(role, part))

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            self._run.ending = "failed" if isinstance(error, Exception) else "cut_off"
            self._add("assistant", ir.Error(_told(error), interruption=self._run.ending == "cut_off"))
        self._run.ended_at, self._run.messages = datetime.now(UTC), list(self._messages)
        size = sum(len(ir.text_of(part)) for part in ir.parts_in(self._run.messages))
        self._delivery.put(self._traces, size)

    def _traces(self) -> list[bytes]:
        try:
            return [to_trace(self._run, self._options).to_json()]
        except ConversionError as error:
            self._delivery.lose(1, str(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one trace, not those after it
            self._delivery.lose(1, repr(error))
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._end(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._end(error)  # which waits for nothing


class RecordedCall:
    """A call of a tool; see :meth:`Recording.call`. An exception that leaves its block is its failure."""

    def __init__(self, add: Callable[[ir.Role, ir.Part], None], call: ir.ToolCall) -> None:
        self._add, self._call = add, call
        self._response: ir.ToolCallResponse | None = None

    def result(self, value: Any, *, failed: bool = False) -> None:
        """Record what the tool returned: a text, or what JSON can hold.

        Args:
            value: the result.
            failed: whether it tells of a failure.
        """
        text = value if isinstance(value, str) else _text_of(value)
        self._response = ir.ToolCallResponse(text, self._call.id, self._call.name, failed)

    def _begin(self) -> Self:
        self._began = time.monotonic()
        return self

    def _end(self, error: BaseException | None) -> None:
        taken = 1000 * (time.monotonic() - self._began)
        self._add("assistant", replace(self._call, latency_ms=taken))
        if error is not None:
            self.result(_told(error), failed=True)
        if self._response is not None:
            self._add("tool", self._response)

    def __enter__(self) -> Self:
        return self._begin()

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._end(error)

    async def __aenter__(self) -> Self:
        return self._begin()

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._end(error)


def record(
    objective: str,
    to: Settings | Path | str,
    *,
    key_by: KeyBy = "id",
    spool: Path | str | None = None,
    agent_id: str | None = None,
    task_domain: str = "default",
    visibility: Visibility = "private",
    privacy_level: PrivacyLevel = "private",
) -> Recording:
    """Record a run of an agent that has no instrumentation.

    ::

        with record("How much does the loaf weigh?", to="traces.jsonl") as run:
            run.thought("I need the scales.")
            with run.call("scales", {"item": "loaf"}) as call:
                call.result(weigh("loaf"))
            run.answer("812 g")

    The run ended as its last step tells it, as in all conversions: with an answer, or else cut off. An
    exception that leaves the block is a failure of the run, and goes on. Nothing here makes the agent wait,
    but for a few seconds at the end of its process.

    Args:
        objective: what the agent is to do.
        to: the settings of the brokers, or a file to which the trace is appended as a line of JSON.
        key_by: the record key, as of :class:`~knowledgepulse_worker.TracePublisher`.
        spool: a folder for what the brokers have not confirmed when the process ends; ``kp-worker publish
            --spool FOLDER`` publishes it. Without one, it is lost, and a warning is logged.
        agent_id: the agent's id.
        task_domain: the domain, which selects the weights of the score.
        visibility: who may see the trace.
        privacy_level: how its content may be used.

    Returns:
        A context manager, for `with` and for `async with`.
    """
    run = ir.Run([ir.message("user", ir.Text(objective))], uuid4().hex, agent_id=agent_id)
    run.framework = FRAMEWORK
    options = Options({"default": task_domain}, visibility=visibility, privacy_level=privacy_level)
    return Recording(run, options, _delivery(to, key_by, spool))


def _delivery(to: Settings | Path | str, key_by: KeyBy, spool: Path | str | None) -> Delivery:
    """Return the delivery to a place, which all runs of the process share."""
    place = _Place(to) if isinstance(to, Settings) else str(to)
    return _delivery_of(place, key_by, None if spool is None else Path(spool))


class _Place:
    """Settings, which are the same place only as the same object."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and other.settings is self.settings

    def __hash__(self) -> int:
        return id(self.settings)


@cache
def _delivery_of(place: _Place | str, key_by: KeyBy, spool: Path | None) -> Delivery:
    delivery = Delivery(place.settings if isinstance(place, _Place) else place, key_by, spool)
    atexit.register(delivery.close)
    os.register_at_fork(after_in_child=delivery.begin)
    return delivery


def _told(error: BaseException) -> str:
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _text_of(value: Any) -> str:
    """Return JSON of a value as it is now; what JSON cannot hold is there as its text."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no texts, or a circle
        return repr(value)
