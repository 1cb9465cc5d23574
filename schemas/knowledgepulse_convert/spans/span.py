"""The span, independent of its export format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, parse_json
from knowledgepulse_convert.common.words import words
from knowledgepulse_convert.messages import wrapped
from knowledgepulse_convert.spans.conversation import ModelCall, ToolRun
from knowledgepulse_convert.spans.tree import Node

_END_OF_TIME = 2**64
"""Times of spans have 64 bits; a larger number is no time."""

_FUNCTION = ("code.function.name", "code.function")
_INDEX = re.compile(r"\.\d+(?=\.|$)")
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_SAID = words(
    """
    answer args arguments body completion content contents conversation data history input inputs memory
    message messages output outputs payload prompt query question reply request response result results said
    text thought thoughts transcript value
    """
)
"""Words in the names of attributes that may hold messages, whoever names them."""
_ABOUT = words(
    """
    agent config count definition definitions description error exception finish functions headers id ids
    metadata mime model name names parameters properties reason reasons resource role roles schema sequences
    settings status stop tokens tool tools type types usage version
    """
)
"""Words in the names of those that hold none."""
_PROSE = 3
"""The least words of a text that was asked or said."""
_LABELS = words("finish_reason id name role type")
"""The members of messages that remain if their content is not recorded."""


@dataclass(frozen=True, slots=True)
class Event:
    """A span event."""

    name: str
    attributes: dict[str, Any]


@dataclass(slots=True)
class Span:
    """A span.

    Attributes:
        start: Nanoseconds since 1970, as ``end`` is.
        scope: The name of the instrumentation.
        losses: The dropped values of the span.
        shared: The dropped values of each object that contains this and other spans, such as the resource.
        hidden: Whether Koog has hidden its content.
    """

    trace_id: str
    id: str
    parent_id: str | None
    name: str
    start: int
    end: int
    attributes: dict[str, Any]
    resource: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    failed: bool = False
    message: str = ""
    scope: str = ""
    losses: Losses = field(default_factory=Losses)
    shared: tuple[Losses, ...] = ()
    hidden: bool = False

    def text(self, *names: str) -> str | None:
        """Return the first non-empty text among these attributes, or else those of the resource."""
        for name in names:
            value = self.attributes.get(name, self.resource.get(name))
            if isinstance(value, str) and value:
                return value
        return None

    def texts(self, *names: str) -> tuple[str, ...]:
        """Return the non-empty texts among these attributes, or else those of the resource."""
        values = (self.attributes.get(name, self.resource.get(name)) for name in names)
        return tuple(value for value in values if isinstance(value, str) and value)

    def nested(self, prefix: str, used: set[str]) -> Any:
        """Return the lists and objects of attributes such as ``prefix.0.role``; None if there are none."""
        names = [name for name in self.attributes if name.startswith(prefix)]
        if not names:  # as in most spans
            return None
        used.update(name for name in names if name == prefix or name[len(prefix)] == ".")
        return unflatten({name: self.attributes[name] for name in names}, prefix)

    def error(self, kind: Any = None) -> ir.Error | None:
        """Return the error of a failed span: the message of its status, else of its exception, else its kind.

        A span with an attribute that names the kind of an error has failed.
        """
        if not self.failed and not kind:
            return None
        exception = next((event.attributes for event in self.events if event.name == "exception"), {})
        messages = (self.message, exception.get("exception.message"), kind)
        return ir.Error(next((message for message in messages if isinstance(message, str) and message), ""))

    def tool_run(
        self,
        name: str,
        arguments: Any,
        response: Any,
        error: ir.Error | None,
        losses: Losses,
        *,
        call_id: str | None = None,
        mcp_server: str | None = None,
        failed: bool = False,
    ) -> ToolRun:
        """Return the span as a tool's execution. Its response is a text or JSON, or else the error's message.

        Args:
            name: The tool's name.
            arguments: The call's arguments.
            response: The recorded response.
            error: The failure that the tracer flags.
            losses: The report that gets the dropped values.
            call_id: The id of the call.
            mcp_server: The MCP server of the tool.
            failed: Whether the record of the response flags a failure.
        """
        answer = None
        if response is not None:
            answer = wrapped.response_of(response, "response", losses, call_id=call_id)
        text = None if answer is None else answer.response
        if text is None and error is not None:
            text = error.message
        elif error is not None and error.message not in (text or ""):
            losses.add("errors of tools that responded", error.message)
        known = _END_OF_TIME > self.end > self.start > 0
        latency = (self.end - self.start) / 1e6 if known else None
        arguments = wrapped.arguments_of(arguments, "arguments", losses)
        call = ir.ToolCall(name, arguments, answer.id if answer else call_id, mcp_server, latency)
        failed = failed or error is not None or (answer is not None and answer.failed)
        return ToolRun(call, text, failed, answer is not None and answer.is_answer)


def node_of(
    span: Span,
    event: ModelCall | ToolRun | None,
    error: ir.Error | None,
    used: set[str],
    losses: Losses,
    *,
    agent: bool,
    silent: bool = False,
    agent_id: str | None,
    names: Iterable[str | None],
    scores: Iterable[tuple[Any, Any]],
    returned: Callable[[], Sequence[ir.Message]] | None = None,
    failures: Iterable[ToolRun] = (),
    reason: Any = None,
    unrecorded: tuple[str, ...] = (),
) -> Node:
    """Return the node of a span, and count the attributes that no reader used."""
    losses.merge(span.losses)
    if event is not None or agent:
        _count_unmapped(span, used, losses)
        losses.add("status.message", span.message if error is None else None)
    else:
        events = [event.attributes for event in span.events]
        content = [span.name, span.attributes, events, span.message]
        losses.add("spans other than agent, model and tool calls", content)
    return Node(
        trace_id=span.trace_id,
        id=span.id,
        parent_id=span.parent_id,
        start=span.start,
        end=span.end,
        agent=agent,
        silent=silent,
        event=event,
        error=error,
        returned=returned,
        written=partial(_written, span),
        unread=partial(_contents_besides, span, used),
        hidden=span.hidden,
        failures=tuple(failures),
        reason=reason,
        unrecorded=unrecorded,
        functions=() if event is not None or agent else (span.name, *span.texts(*_FUNCTION)),
        agent_id=agent_id,
        names=tuple(name for name in names if name),
        outcome=ir.RunOutcome.of_scores(scores),
        losses=losses,
        shared=span.shared,
    )


def _written(span: Span) -> Iterator[str]:
    """Yield each attribute of a span and of its events."""
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        yield from (f"{name}: {value}" for name, value in attributes.items())


def _contents_besides(span: Span, used: set[str]) -> Iterator[str]:
    """Yield the names of the attributes that no reader used, and that may hold what was asked or said."""
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for name, value in attributes.items():
            named = {word.lower() for word in _WORD.findall(name)}
            if name not in used and named & _SAID and not named & _ABOUT and _is_said(parse_json(value)):
                yield name


def _is_said(value: Any) -> bool:
    """Check for prose, or for a list or an object with something in it beside the labels of messages."""
    if not isinstance(value, dict | list):
        return len(as_text(value).split()) >= _PROSE
    rest: list[Any] = [value]
    while rest:
        match rest.pop():
            case dict() as members:
                rest += [each for name, each in members.items() if name not in _LABELS]
            case list() as items:
                rest += items
            case leaf if leaf not in (None, ""):
                return True
    return False


def _count_unmapped(span: Span, used: set[str], losses: Losses) -> None:
    """Count the unused attributes and events, with indexes removed from their names."""
    for name, value in span.attributes.items():
        if name not in used:
            losses.add("attributes." + _INDEX.sub("[]", name), value)
    for event in span.events:
        for name, value in event.attributes.items():
            if name not in used:
                losses.add(f"events.{event.name}.{name}", value)


def unflatten(attributes: dict[str, Any], prefix: str) -> Any:
    """Rebuild the lists and objects of attributes such as ``prefix.0.role``; None if there are none.

    A value may itself be an object with dotted names.
    """
    tree: Any = None
    for name, value in attributes.items():
        if name == prefix:
            tree = _spread(value)
        elif name.startswith(f"{prefix}."):
            tree = tree if isinstance(tree, dict) else {}
            _put(tree, name[len(prefix) + 1 :].split("."), _spread(value))
    return _listed(tree)


def _spread(value: Any) -> Any:
    """Nest an object with dotted member names."""
    if isinstance(value, list):
        return [_spread(item) for item in value]
    if not isinstance(value, dict):
        return value
    tree: dict[str, Any] = {}
    for name, member in value.items():
        _put(tree, str(name).split("."), _spread(member))
    return tree


def _put(tree: dict[str, Any], steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        below = tree.get(step)
        if not isinstance(below, dict):
            below = tree[step] = {}
        tree = below
    old = tree.get(steps[-1])
    tree[steps[-1]] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value


def _listed(tree: Any) -> Any:
    """Convert objects with numbered members to lists."""
    if isinstance(tree, list):
        return [_listed(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if tree and all(name.isascii() and name.isdigit() for name in tree):
        return [_listed(tree[name]) for name in sorted(tree, key=lambda name: (len(name), name))]
    return {name: _listed(member) for name, member in tree.items()}
