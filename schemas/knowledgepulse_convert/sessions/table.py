"""Sessions and messages that a table describes: what a line is, whose, and where its parts are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.pattern import AnyOf, Conditions, Path, Pattern, Places, any_of, at
from knowledgepulse_convert.messages.blocks import Parts, parts_of

ROLES: dict[str, ir.Role] = {
    **ir.ROLES,
    "gpt": "assistant",
    "response": "assistant",
    "request": "user",
    "tool_result": "tool",
    "observation": "tool",
    "function_call": "assistant",  # the text is the call
}
"""Names of roles, also those of Pydantic AI's messages and of ShareGPT's."""


_ITSELF, _TIMESTAMP = at(), at("timestamp")


@dataclass(frozen=True, slots=True)
class Texts:
    """A text, or objects with texts, that are blocks of a type."""

    type: str
    path: Path


@dataclass(frozen=True, slots=True)
class Block:
    """An object that is a block of a type: at a path, or the line itself."""

    type: str
    path: Path = _ITSELF


@dataclass(frozen=True, slots=True)
class VendorMessage:
    """A message of any vendor, or a list of them: at a path, or the line itself."""

    path: Path = _ITSELF


Part = Path | Texts | Block | VendorMessage
"""Where a part of a message is: a path alone leads to a text or to blocks of any vendor."""


@dataclass(frozen=True)
class Line:
    """A kind of line.

    Attributes:
        where: What it has. A value alone is that of the member ``type``.
        role: The role of its message, or where the role's name is; None without a message.
        parts: The parts of the message, or the only one.
        id: Where the session's id is.
        cwd: Where the working directory is.
        model: Where the name of the model is.
        ended: Whether the run has ended, or where it says how.
        verdict: Where the verdict of a grader is.
        tools: Where the definitions of tools are.
        error: Where the message of a failure is.
        stop: Where the reasons are why an answer or the run ended.
        flags: Where members are that tell whether its results are failures, besides the results themselves.
        may_repeat: It may repeat the last message, a call with its id, or the agent's last or whole text.
        may_restate_call: It may tell a call again that is not answered yet, whose arguments it then has.
        is_piece: Its text is a piece of an answer or of a thought, or its call has a piece of the arguments.
        read: What reads its parts, if they are not blocks of any vendor.
        of: Whose line it is, if not the run's.
        is_beside: It is known to hold no part of the conversation, or nothing that other lines do not.
        has_time: Its time counts although it is beside the conversation.
    """

    where: Any
    role: ir.Role | Path | None = None
    parts: Part | tuple[Part, ...] = ()
    id: Path | None = None
    cwd: Path | None = None
    model: Path | None = None
    ended: Path | bool | None = None
    verdict: Path | None = None
    tools: Path | None = None
    error: Path | None = None
    stop: tuple[Path, ...] = ()
    flags: tuple[Path, ...] = ()
    may_repeat: bool = False
    may_restate_call: bool = False
    is_piece: bool = False
    read: Callable[[Any, str, Losses, str], Parts] = parts_of
    of: str = ""
    is_beside: bool = False
    has_time: bool = False

    @cached_property
    def pattern(self) -> Pattern:
        """What it has."""
        return Pattern(self.where if isinstance(self.where, dict) else {"type": self.where})

    @cached_property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts of its message."""
        return self.parts if isinstance(self.parts, tuple) else (self.parts,)

    @cached_property
    def is_all_read(self) -> bool:
        """Whether it is a message or a block itself."""
        return any(not isinstance(part, Path) and not part.path.names for part in self.all_parts)

    @cached_property
    def beside_parts(self) -> Places:
        """What is read besides its parts."""
        return Places(self._beside_parts())

    @cached_property
    def all_places(self) -> Places:
        """All that is read."""
        parts = (part if isinstance(part, Path) else part.path for part in self.all_parts)
        role = self.role if isinstance(self.role, Path) else None
        return Places([*self._beside_parts(), role, *parts])

    def _beside_parts(self) -> list[Path | None]:
        told = (path for path, wanted in self.pattern.wanted.items() if wanted is not dict)
        ended = self.ended if isinstance(self.ended, Path) else None
        return [*told, *self.stop, self.tools, self.error, self.id, self.cwd, self.model, ended, self.verdict]


@dataclass(frozen=True)
class Table:
    """A format whose lines or messages are described.

    Attributes:
        name: The format's name on the command line.
        text: Its docstring.
        members: Names of members that are typical of the format, separated by spaces.
        first: What one of the format's lines has; one of several alternatives.
        lines: The kinds of lines, of which the first that fits counts.
        wrapper: The pattern that opens the element around the user's own text, if there is one.
        hidden: What stands at the end of a text for one that was left out.
        time: Where a line's time is; of several, the last one that it has.
        id: Where the session's id is, if each line may have it; of a record, ``id`` by default.
        agent: Where the id is of the subagent whose line it is, which then is of a run of its own.
        known: Where lines say nothing of the run.
        ended: False for a stream that an event ends.
        within: The members of a record that may hold messages; none for a list alone, None for lines.
        only_lines: A list of these lines is another format.
        coding_agent: Whether its program is a coding agent.
        unrecorded: What its documents do not tell of a run.
        places: Where programs keep them; see ``InputFormat``, as for ``ids_in_path``.
    """

    name: str
    text: str | None
    members: str
    first: tuple[Conditions, ...]
    lines: tuple[Line, ...]
    wrapper: re.Pattern[str] | None = None
    hidden: str = ""
    time: tuple[Path, ...] = (_TIMESTAMP,)
    id: Path | None = None
    agent: tuple[Path, ...] = ()
    known: tuple[Path, ...] = ()
    ended: Literal[False] | None = None
    within: tuple[str, ...] | None = None
    only_lines: bool = False
    coding_agent: bool = False
    unrecorded: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ids_in_path: re.Pattern[str] | None = None

    @cached_property
    def is_first(self) -> AnyOf:
        """The check for a line of the format."""
        return any_of(*self.first)
