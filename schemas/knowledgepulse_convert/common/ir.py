"""The intermediate representation of a run, to which every input format is converted.

A format yields a :class:`Run`, which ``convert.common.trace.to_trace`` converts to a trace. The message parts
are those of OpenTelemetry's GenAI conventions (text, reasoning, tool_call, tool_call_response), plus
:class:`Error` for failures that the input flags outside of a tool response.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableSequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.rewards import Reward, number_of
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_schemas.trace import Ending

UNORDERED = "order of texts and calls"
"""What a run's records do not tell if its steps may stand in another order."""
Role = Literal["system", "user", "assistant", "tool"]

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "session_meta": "system",  # the first message of Hermes' sessions
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""The vendors' names of the four roles."""


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text of a message."""

    content: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning text of the model."""

    content: str


_OWN_SCORES = "knowledgepulse."
"""How the names of the scores begin that are sent back to tracers."""
_MCP_NAME = re.compile(r"mcp__(.+?)__(.+)", re.DOTALL)
"""The name that many agents give to a tool of an MCP server."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call; ``arguments`` are an object, or its JSON text as written by the model.

    ``mcp__server__tool`` is the ``tool`` of the MCP server ``server``.
    """

    name: str
    arguments: Any = None
    id: str | None = None
    mcp_server: str | None = None
    latency_ms: float | None = None

    def __post_init__(self) -> None:
        """Treat an empty id as missing: some tracers write one for every call. Split an MCP tool's name."""
        _normalise(self)


@dataclass(frozen=True, slots=True)
class ToolCallResponse:
    """A tool's response; ``failed`` only if the input flags it.

    ``is_answer``: whether the input states that it is the run's answer, as frameworks allow tools to give.
    """

    response: str
    id: str | None = None
    name: str | None = None
    failed: bool = False
    mcp_server: str | None = None
    is_answer: bool = False

    def __post_init__(self) -> None:
        """Treat an empty id as missing and split an MCP tool's name, as :class:`ToolCall` does."""
        _normalise(self)


@dataclass(frozen=True, slots=True)
class Error:
    """A failure that the input flags outside of a tool response.

    After an ``interruption``, by the user or a crash, the agent's next step is no recovery.
    """

    message: str = ""
    interruption: bool = False


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that the model could call; ``parameters`` is the JSON Schema of its arguments.

    A part of the system's messages: like their text, it tells the model what it can do. Its name is the
    model's, ``mcp__server__tool`` included.
    """

    name: str
    description: str = ""
    parameters: Any = None


def _normalise(part: ToolCall | ToolCallResponse) -> None:
    if part.id is not None and not part.id:
        object.__setattr__(part, "id", None)
    if part.mcp_server is None and part.name and (found := _MCP_NAME.fullmatch(part.name)):
        object.__setattr__(part, "mcp_server", found[1])
        object.__setattr__(part, "name", found[2])


Part = Text | Reasoning | ToolCall | ToolCallResponse | Error | ToolDefinition


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation, and its time if the input records one."""

    role: Role
    parts: tuple[Part, ...]
    at: datetime | None = None


def message(role: Role, *parts: Part | None) -> Message:
    """Return a message of the parts that are not None."""
    return Message(role, tuple(filter(None, parts)))


def reasoning(text: str | None) -> Reasoning | None:
    """Return the part for a text of reasoning; None if there is none."""
    return Reasoning(text) if text else None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Success and confidence (0 to 1) of a run, as judged by a person or an evaluation, and its rewards."""

    success: bool | None = None
    confidence: float | None = None
    rewards: tuple[Reward, ...] = ()

    def over(self, other: RunOutcome) -> RunOutcome:
        """Return this outcome, with unset values and rewards of other names taken from the other one."""
        names = {reward.name for reward in self.rewards}
        return RunOutcome(
            success=other.success if self.success is None else self.success,
            confidence=other.confidence if self.confidence is None else self.confidence,
            rewards=(*self.rewards, *(reward for reward in other.rewards if reward.name not in names)),
        )

    @classmethod
    def graded(cls, rewards: Iterable[Reward]) -> RunOutcome:
        """Return the outcome that rewards state; if they disagree, the run did not succeed."""
        kept = tuple(rewards)
        judged = [reward.verdict for reward in kept if reward.verdict is not None]
        return cls(success=all(judged) if judged else None, rewards=kept)

    @classmethod
    def of_scores(cls, scores: Iterable[tuple[Any, Any]]) -> RunOutcome:
        """Return the outcome in scores named ``success`` (true, false, 1 or 0) and ``confidence`` (0 to 1).

        The numbers of others are rewards, which judge nothing as long as nobody says so; our own is none.
        """
        outcome = cls()
        for name, value in scores:
            number = number_of(value)
            if number is None or not isinstance(name, str) or not name or name.startswith(_OWN_SCORES):
                continue
            if name == "success" and number in {0, 1}:
                outcome = cls(success=bool(number)).over(outcome)
            elif name == "confidence" and type(value) in (int, float) and 0 <= number <= 1:
                outcome = cls(confidence=number).over(outcome)
            else:
                outcome = cls(rewards=(Reward(name, number),)).over(outcome)
        return outcome


@dataclass(slots=True)
class Run:
    """One run of an agent.

    Attributes:
        messages: The conversation in time order, without repeated messages.
        native_id: The run's id in the input. Without one, the trace's id is derived from the content.
        parent_id: The native id of the run that started this one as a subagent.
        span: OpenTelemetry's trace id and span id of the root, in hexadecimal.
        ending: How the run ended, if the input states it; the messages tell it otherwise.
        unverified: Whether its answer is a result that others have to check, such as a patch.
        agent_id: The agent's id or name in the input.
        names: Names of the agent, the service and the project, to look up in a domain map.
        models: The models that answered, in the order of their first answers.
        outcome: The outcome in the input.
        task_id: The id of the task, which the runs of a benchmark's repetitions share.
        unasked: Why it may have no text of the user, if that is known.
        framework: The format's name, which becomes ``metadata.framework``; the conversion sets it.
        unrecorded: What its records do not tell; the conversion adds what those of its format never do.
    """

    messages: MutableSequence[Message]
    native_id: str | None = None
    parent_id: str | None = None
    span: tuple[str, str] | None = None
    ended_at: datetime | None = None
    ending: Ending | None = None
    unverified: bool = False
    agent_id: str | None = None
    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    outcome: RunOutcome = field(default_factory=RunOutcome)
    task_id: str | None = None
    losses: Losses = field(default_factory=Losses)
    unasked: str | None = None
    framework: str = ""
    unrecorded: tuple[str, ...] = ()


UNKNOWN = RunOutcome()
"""The outcome of a run that nobody has judged."""


def role_of(name: str, path: str) -> Role:
    """Return the role with a vendor's name, or raise a ConversionError that names the message's path."""
    role = ROLES.get(name) or ROLES.get(name.lower())  # Koog's begin with a capital
    if role is None:
        raise ConversionError(f"{path}.role: {name!r} is none of {', '.join(ROLES)}")
    return role


def without_example(role: Role, name: str | None, calls: Any) -> Role:
    """Return the role of a message, which is the system's for an example named as vendors advise."""
    return "system" if (name or "").startswith("example_") and not calls else role


def cut_off(finish_reason: Any) -> Iterator[Error]:
    """Yield an interruption if an answer's finish reason says that it was cut off, an error if it failed."""
    if ending := told_by(finish_reason):
        yield Error(interruption=ending == "cut_off")


def end_of(finish_reason: Any) -> list[Message]:
    """Return the message with what :func:`cut_off` yields; none for any other finish reason."""
    return [message("assistant", error) for error in cut_off(finish_reason)]


def join_texts(parts: Iterable[Part]) -> str:
    """Return the visible text of message parts, one part a line."""
    return "\n".join(part.content for part in parts if isinstance(part, Text))


def parts_in(messages: Iterable[Message]) -> Iterator[Part]:
    """Return the parts of messages, one after another."""
    return (part for message in messages for part in message.parts)


def text_of(part: Part) -> str:
    """Return what a part says: the text, a tool's response, or the message of an error."""
    match part:
        case Text() | Reasoning():
            return part.content
        case ToolCallResponse():
            return part.response
        case Error():
            return part.message
    return ""


def transcript_of(messages: Iterable[Message]) -> str:
    """Return the texts and responses in messages, to search for a text that they may lack."""
    said = (Text, Reasoning, ToolCallResponse)
    return "\n".join(text_of(part) for part in parts_in(messages) if isinstance(part, said))


def contents_of(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the parts of messages as plain values, for the loss report."""
    return [{name: getattr(part, name) for name in part.__slots__} for part in parts_in(messages)]


def is_outcome(name: Any, value: Any) -> bool:
    """Return whether a score is the success, the confidence or a reward of a run."""
    return RunOutcome.of_scores([(name, value)]) != UNKNOWN
