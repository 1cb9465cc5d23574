"""A span, out of whichever envelope it came."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from schemas.convert.losses import Losses


@dataclass(frozen=True, slots=True)
class Event:
    """What a span says happened at one moment."""

    name: str
    attributes: dict[str, Any]


@dataclass(slots=True)
class Span:
    """A span; times are nanoseconds since 1970.

    Its losses are what of the envelope had no place: of the span itself, and of what it shares with others.
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
    losses: Losses = field(default_factory=Losses)
    shared: Losses = field(default_factory=Losses)


def text_of(span: Span, *names: str) -> str | None:
    """Return the first of the attributes that is a text, of the span or else of its resource."""
    for name in names:
        value = span.attributes.get(name, span.resource.get(name))
        if isinstance(value, str) and value:
            return value
    return None


def lose_unread(span: Span, used: set[str], losses: Losses) -> None:
    """Report the attributes and the events that were not used; positions in their names are left out."""
    losses.merge(span.losses)
    for name, value in span.attributes.items():
        if name not in used:
            losses.add("attributes." + re.sub(r"\.\d+(?=\.|$)", "[]", name), value)
    for event in span.events:
        for name, value in event.attributes.items():
            if name not in used:
                losses.add(f"events.{event.name}.{name}", value)


def lose_whole(span: Span, losses: Losses) -> None:
    """Report a span of which nothing was used."""
    losses.merge(span.losses)
    events = [event.attributes for event in span.events]
    losses.add("spans that are no call of an agent, a model or a tool", [span.name, span.attributes, events])


def unflatten(attributes: dict[str, Any], prefix: str) -> Any:
    """Return what attributes such as ``prefix.0.role`` spell, as lists and objects.

    A value may itself be an object with such names. None where there is no such attribute.
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
    """Return an object whose members' names have dots as objects in each other."""
    if isinstance(value, list):
        return [_spread(one) for one in value]
    if not isinstance(value, dict):
        return value
    tree: dict[str, Any] = {}
    for name, one in value.items():
        _put(tree, str(name).split("."), _spread(one))
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
    """Return objects whose members are numbered as lists."""
    if isinstance(tree, list):
        return [_listed(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    if tree and all(name.isascii() and name.isdigit() for name in tree):
        return [_listed(tree[name]) for name in sorted(tree, key=lambda name: (len(name), name))]
    return {name: _listed(one) for name, one in tree.items()}
