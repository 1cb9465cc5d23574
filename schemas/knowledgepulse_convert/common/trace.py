"""Conversion of runs to traces, by the same rules for every input format."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property, reduce
from hashlib import sha256
from io import BytesIO
from typing import Any

from pydantic import TypeAdapter, ValidationError

from knowledgepulse_convert.common import boilerplate, ir
from knowledgepulse_convert.common.elements import elements
from knowledgepulse_convert.common.endings import End, answer_in
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.exit_codes import written_exit_code
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.own_failures import is_own_failure
from knowledgepulse_convert.common.reading import parse_json, without
from knowledgepulse_convert.common.rewards import Reward
from knowledgepulse_convert.common.text_calls import with_calls
from knowledgepulse_schemas.trace import (
    CONTEXTS,
    Ending,
    Metadata,
    PrivacyLevel,
    ReasoningTrace,
    Visibility,
    trace_id_of,
)
from knowledgepulse_schemas.trace import Step as StepModel

DEFAULT_CONFIDENCE = 0.5
UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""``created_at`` of a run without a time; fixed, so that repeated conversions give the same trace."""

Step = dict[str, Any]

_LEVELS = 198
"""The most levels of objects and lists in a step: the worker accepts 200 in a trace; pydantic writes 255."""
_MIN_WORDS = 3
_REPLACED = "\N{REPLACEMENT CHARACTER}".encode()
"""What pydantic writes for a lone surrogate in a name."""
_SURROGATES = re.compile("[\ud800-\udfff]")
_THOUGHT = re.compile(r"\s*<(think)>")
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+")


@dataclass(frozen=True, slots=True)
class Options:
    """Trace fields that the input cannot provide.

    Attributes:
        domains: The ``task_domain`` by the name of an agent, service, project or format; that of all others
            by ``default``.
        outcomes: Run outcomes by the run's native id or the trace's id. They override the input's own.
        success_from: The scores that judge the runs in place of the input's own judgement, by name, each with
            the least that a right run has.
        visibility: The visibility of the traces.
        privacy_level: The privacy level of the traces.
        keep_prompt: Whether to keep system text and tool definitions, as ``task.system`` and ``task.tools``.
        per_request: Whether to make a trace of each request of the user.
        objective: The objective of runs without a text of the user; a stream may hold no prompt.
        recorded_at: The time of runs that record none, such as the time when their file was last modified.
        path: The path of their file, which for some formats alone tells a run's id.
    """

    domains: Mapping[str, str] = field(default_factory=dict)
    outcomes: Mapping[str, ir.RunOutcome] = field(default_factory=dict)
    success_from: Mapping[str, float] = field(default_factory=dict)
    visibility: Visibility = "private"
    privacy_level: PrivacyLevel = "private"
    keep_prompt: bool = False
    per_request: bool = False
    objective: str | None = None
    recorded_at: datetime | None = None
    path: str = ""


@dataclass(frozen=True)
class Conversion:
    """A trace, and the dropped values of the input.

    A session of a hundred megabytes is in memory once, as long as nobody asks for the ``trace``.
    """

    losses: Losses
    _frame: ReasoningTrace  # with a step in place of all
    _steps: list[bytes]  # each as JSON without its id

    @cached_property
    def trace(self) -> ReasoningTrace:
        """The trace."""
        steps = [StepModel.model_validate_json(step) for step in self._numbered()]
        return self._frame.model_copy(update={"steps": steps})

    @property
    def metadata(self) -> Metadata:
        """The trace's metadata."""
        return self._frame.metadata

    def to_json(self) -> bytes:
        """Return the trace as JSON, the value of a Kafka record."""
        with BytesIO() as value:  # `join` would hold all pieces, too
            value.writelines(self.pieces())
            return value.getvalue()

    def pieces(self) -> Iterator[bytes]:
        """Yield the trace as JSON, step by step."""
        frame = self._frame.model_dump_json(exclude_unset=True).encode()
        before, place, after = frame.rpartition(b'[{"step_id":0,"type":"observation"}]')
        yield before + place[:1]
        for number, step in enumerate(self._numbered()):
            yield b"," + step if number else step
        yield place[-1:] + after

    def _numbered(self) -> Iterator[bytes]:
        for number, step in enumerate(self._steps):
            yield b'{"step_id":%d,%b' % (number, step[1:])


def to_trace(run: ir.Run, options: Options | None = None, usual_domain: str = "default") -> Conversion:
    """Convert a run, whose messages it takes, to a trace.

    ``usual_domain``: the task domain that it has unless the options tell another.

    Raises:
        ConversionError: the run has no user text to be the objective, or no steps after it.
    """
    options = options or Options()
    steps = _Steps(run)
    objective = _objective(run, steps, options)
    if not steps.steps:
        raise ConversionError("no steps: text, reasoning or a tool call is required besides the user's text")
    native_id = _encodable(run.native_id or steps.hash(objective))
    trace_id = trace_id_of(native_id)
    overrides = [options.outcomes[run_id] for run_id in (trace_id, native_id) if run_id in options.outcomes]
    outcome = reduce(ir.RunOutcome.over, [*overrides, run.outcome])
    named = _judged(outcome, options.success_from)
    outcome = reduce(ir.RunOutcome.over, [*overrides, named, outcome])
    ending = _ending(run, steps.end)
    success, outcome_source = _success(ending, outcome)
    document = {
        "@context": CONTEXTS[0],
        "@type": "ReasoningTrace",
        "id": trace_id,
        "metadata": {
            "created_at": _iso(run.ended_at or options.recorded_at or UNKNOWN_TIME),
            "task_domain": _domain(run, options.domains, usual_domain),
            "success": success,
            "visibility": options.visibility,
            "privacy_level": options.privacy_level,
            "framework": run.framework,
            "ending": ending,
            "outcome_source": outcome_source,
            "confidence_source": "default" if outcome.confidence is None else "label",
            **({"rewards": list(map(_told, outcome.rewards))} if outcome.rewards else {}),
            **_origin(run, native_id, options),
        },
        "task": {"objective": objective, **(steps.prompt() if options.keep_prompt else {})},
        "steps": [{"step_id": 0, "type": "observation"}],
        "outcome": {
            "result_summary": steps.result,
            "confidence": DEFAULT_CONFIDENCE if outcome.confidence is None else outcome.confidence,
        },
    }
    if not options.keep_prompt:
        steps.count_prompt(run.losses)
    return Conversion(run.losses, _validated(document), steps.steps)


def _objective(run: ir.Run, steps: _Steps, options: Options) -> str:
    objective = options.objective if steps.objective is None else steps.objective
    if not objective or not objective.strip():
        raise ConversionError(
            run.unasked
            or "no objective: a user message with text is required, or else --objective (`Options.objective`)"
        )
    return objective


def _origin(run: ir.Run, native_id: str, options: Options) -> dict[str, Any]:
    """Return what is known of where the run comes from, and what says when it ended if the run does not."""
    of_time = "unknown" if options.recorded_at is None else "file"
    known = {
        "created_at_source": of_time if run.ended_at is None else None,
        "native_id": run.native_id and native_id,
        "parent_id": run.parent_id and trace_id_of(_encodable(run.parent_id)),
        "task_id": run.task_id and _encodable(run.task_id),
        "agent_id": run.agent_id,
        "models": list(run.models),
        "unrecorded": list(run.unrecorded),
        "span_context": run.span and dict(zip(("trace_id", "span_id"), run.span, strict=True)),
    }
    return {name: value for name, value in known.items() if value}


def _judged(outcome: ir.RunOutcome, success_from: Mapping[str, float]) -> ir.RunOutcome:
    """Return what the scores say that judge the runs; if they disagree, the run did not succeed."""
    least = [
        reward.value >= success_from[reward.name] for reward in outcome.rewards if reward.name in success_from
    ]
    return ir.RunOutcome(success=all(least) if least else None)


def _told(reward: Reward) -> dict[str, Any]:
    return {name: value for name, value in asdict(reward).items() if value is not None}


class _Steps:
    """Steps, objective and result, collected from the messages of a run."""

    def __init__(self, run: ir.Run) -> None:
        # The first user text of at least three words before the first tool call, or else the first user text.
        self.objective: str | None = None
        # As JSON without their ids. Each takes the place of its message in memory: of blocks, or of one text
        # for all, hardly any would.
        self.steps: list[bytes] = []
        self._content: list[bytes] | None = None if run.native_id else []  # for the hash
        self.result = ""  # the last assistant text, or the answer in a call or a response
        self.end = End()
        self._failed = False  # whether the last failure has no agent step after it
        self._asked_at = 0  # number of steps before the objective
        self._has_call = False
        self._system: list[str] = []
        self._definitions: list[ir.ToolDefinition] = []
        self._losses = run.losses
        self._known: dict[tuple[str, str | None], Step] = {}  # the tools by name and server
        self._tools: dict[str, Step] = {}  # by id of the call
        self._tools_without_id: deque[Step] = deque()
        for message in with_calls(run.messages, run.losses):  # the steps take their place
            self._add(message)
        names = {name for name, _ in self._known}
        run.losses.suspect_calls(lambda told: told in self._tools or told.rpartition("__")[2] in names)

    def hash(self, objective: str) -> str:
        """Return a hash of the run's content, to replace a missing native id."""
        return sha256(b"[%b, [%b]]" % (_json(objective), b", ".join(self._content or ()))).hexdigest()

    def prompt(self) -> Step:
        """Return the members of a task for system text and tool definitions."""
        tools = [asdict(definition) for definition in self._definitions]
        members: Step = {"system": "\n\n".join(self._system), "tools": tools}
        return {name: value for name, value in members.items() if value}

    def count_prompt(self, losses: Losses) -> None:
        """Count system text and tool definitions as dropped."""
        for text in self._system:
            losses.add("system text", text)
        for definition in self._definitions:
            losses.add("tool definitions", [definition.name, definition.description, definition.parameters])

    def _add(self, message: ir.Message) -> None:
        for role, part in _joined(message):
            self.end.add(role, part)
            match part:
                case ir.Text():
                    self._add_text(role, part.content)
                case ir.Reasoning():
                    self._add_thought(part.content)
                case ir.ToolCall():
                    self._add_call(part)
                case ir.ToolCallResponse():
                    self._add_response(part)
                case ir.Error():
                    self._add_error(part)
                case ir.ToolDefinition():
                    self._definitions.append(part)

    def _add_text(self, role: ir.Role, text: str) -> None:
        if not text.strip():
            return
        if role == "system":
            self._system.append(text)
        elif role == "assistant":
            self._add_thought(text)
            self.result = text
        elif role == "user" and self.objective is None:
            self.objective, self._asked_at = text, len(self.steps)
        elif role == "user" and not self._has_call and _is_short(self.objective) and not _is_short(text):
            self._put({"type": "observation", "content": self.objective}, self._asked_at)
            self.objective = text
        else:
            self._put({"type": "observation", "content": text})

    def _add_call(self, call: ir.ToolCall) -> None:
        self._has_call = True
        self.result = answer_in(call) or self.result
        tool = self._tool(call.name, call.mcp_server)
        if call.id is not None:
            self._tools[call.id] = tool
        else:
            self._tools_without_id.append(tool)
        step: Step = {"type": "tool_call", "tool": tool}
        if call.id is not None:
            step["tool_call_id"] = call.id
        if (arguments := _arguments(call.arguments)) is not None:
            step["input"] = arguments
        if call.latency_ms is not None and call.latency_ms >= 0:
            step["latency_ms"] = call.latency_ms
        self._add_own(step)

    def _add_response(self, response: ir.ToolCallResponse) -> None:
        step: Step = {"type": "observation", "content": response.response}
        tool = self._tool_of(response)
        if tool is None:
            self._losses.add("tool of a response without a call", response.id or "-")
        else:
            step["tool"] = tool
        if response.id is not None:
            step["tool_call_id"] = response.id
        self._put(step)
        told = written_exit_code(response.response) != 0 or is_own_failure(response.response)
        self._failed = self._failed or response.failed or told
        if response.is_answer:
            self.result = response.response

    def _tool_of(self, response: ir.ToolCallResponse) -> Step | None:
        tool = self._tools.get(response.id or "")
        if response.name and (tool is None or tool["name"] != response.name):  # agents may share ids
            return self._tool(response.name, response.mcp_server)
        if response.id is None and self._tools_without_id:
            return self._tools_without_id.popleft()
        return tool

    def _tool(self, name: str, mcp_server: str | None) -> Step:
        """Return a tool, which all steps with it share."""
        tool = {"name": name, "mcp_server": mcp_server} if mcp_server else {"name": name}
        return self._known.setdefault((name, mcp_server), tool)

    def _add_error(self, error: ir.Error) -> None:
        if error.message.strip():
            self._put({"type": "observation", "content": error.message})
        self._failed = self._failed or not error.interruption

    def _add_thought(self, text: str) -> None:
        if text.strip():
            self._add_own({"type": "thought", "content": text})

    def _add_own(self, step: Step) -> None:
        """Add a step of the agent; the first one after a failure is its recovery."""
        if self._failed:
            step["type"] = "error_recovery"
        self._failed = False
        self._put(step)

    def _put(self, step: Step, position: int | None = None) -> None:
        position = len(self.steps) if position is None else position
        self.steps.insert(position, _encoded(step, position))
        if self._content is not None:
            # The calls' ids are no content: some tracers make them up anew.
            own = without(step, "tool_call_id")
            self._content.insert(position, _json(own))


def _joined(message: ir.Message) -> Iterator[tuple[ir.Role, ir.Part]]:
    """Yield a message's parts with their roles.

    Consecutive texts are joined. A program's own texts among the user's are the system's, and what it writes
    in the place of an answer is an interruption.
    """
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, ir.Text):
            texts.append(part.content)
            continue
        if texts:
            yield from _joined_texts(message.role, texts)
            texts = []
        yield message.role, part
    if texts:
        yield from _joined_texts(message.role, texts)


def _joined_texts(role: ir.Role, texts: list[str]) -> Iterator[tuple[ir.Role, ir.Part]]:
    if role == "user":
        own, texts = boilerplate.split(texts)
        yield from (("system", ir.Text(text)) for text in own)
    text = "\n".join(texts)
    if role == "assistant" and boilerplate.is_given_up(text):
        yield role, ir.Error(text, interruption=True)
    elif role == "assistant" and _THOUGHT.match(text):
        yield from ((role, part) for part in _thought_first(text))
    elif texts:
        yield role, ir.Text(text)


def _thought_first(text: str) -> Iterator[ir.Part]:
    """Yield the thought that some models write before their answer, and the answer."""
    thought = next(elements(text, _THOUGHT))
    yield ir.Reasoning(thought.content.strip())
    yield ir.Text(text[thought.end :].lstrip())


def _is_short(text: str | None) -> bool:
    """Check for fewer than three words, such as "hi"; each character of Chinese or Japanese is a word."""
    return len(_WORDS.findall(text or "")) < _MIN_WORDS


def _arguments(arguments: Any) -> dict[str, Any] | None:
    parsed = parse_json(arguments)
    if isinstance(parsed, dict) or parsed is None:
        return parsed
    return None if parsed == "" else {"raw": arguments}


def _domain(run: ir.Run, domains: Mapping[str, str], usual: str) -> str:
    """Return the domain of the run's first name in the map; the format's name and `default` come last.

    A map without any of them leaves it the usual domain.
    """
    names = (*run.names, run.framework, "default")
    return next((domains[name] for name in names if name in domains), usual)


def _ending(run: ir.Run, end: End) -> Ending:
    ending = end.ending(run.ending)
    return "submitted" if ending == "answered" and run.unverified else ending


def _success(ending: Ending, outcome: ir.RunOutcome) -> tuple[bool, str]:
    """Return whether a run succeeded, and who says so."""
    if outcome.success is not None:
        return outcome.success, "label"
    if ending == "answered":
        return True, "ended_without_error"
    return False, "unverified_submission" if ending == "submitted" else "structural_failure"


def _encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with ``?``; a text without any is not copied."""
    return _SURROGATES.sub("?", text)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _validated(document: dict[str, Any]) -> ReasoningTrace:
    with _refused():
        return ReasoningTrace.model_validate(_plain(document))


def _encoded(step: Step, position: int) -> bytes:
    """Return a step as JSON without its id."""
    with suppress(ValueError):  # what is no plain JSON is looked at below
        encoded = _dumped(step)
        if _REPLACED not in encoded and encoded.count(b"{") + encoded.count(b"[") <= _LEVELS:
            return encoded
    with _refused(f"steps.{position}."):
        return _dumped(_plain(step))


def _dumped(step: Step) -> bytes:
    adapter = _step_adapter()
    model = adapter.validate_python({"step_id": 0, **step})
    return b"{" + adapter.dump_json(model, exclude_unset=True).removeprefix(b'{"step_id":0,')


@cache
def _step_adapter() -> TypeAdapter[StepModel]:
    return TypeAdapter(StepModel)


@contextmanager
def _refused(path: str = "") -> Iterator[None]:
    """Raise a ConversionError for a value at a path that does not fit the schema."""
    try:
        yield
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = path + ".".join(str(step) for step in problem["loc"])
        raise ConversionError(f"the trace would be invalid: {place}: {problem['msg']}") from error


def _plain(value: Any, levels: int = _LEVELS) -> Any:
    """Return a value as JSON would have it; lone surrogates, which UTF-8 cannot encode, become ``?``.

    Raises:
        ConversionError: the value has more levels of objects and lists.
    """
    if isinstance(value, str):
        return value if value.isascii() else _encodable(value)
    if not isinstance(value, dict | list | tuple):
        return value
    if not levels:
        raise ConversionError(f"nested too deeply: a value has more than {_LEVELS} levels")
    inner = levels - 1
    if isinstance(value, dict):
        return {
            name if not isinstance(name, str) or name.isascii() else _encodable(name): _plain(member, inner)
            for name, member in value.items()
        }
    return [_plain(member, inner) for member in value]


def _json(value: Any) -> bytes:
    """Serialise a value as JSON; lone surrogates, which UTF-8 cannot encode, become ``?``."""
    try:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise ConversionError(f"the trace cannot be serialised as JSON: {error}") from error
