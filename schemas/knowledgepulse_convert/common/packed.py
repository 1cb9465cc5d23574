"""The messages of a long session, in little memory."""

from __future__ import annotations

import json
from collections.abc import MutableSequence
from dataclasses import fields
from datetime import datetime
from typing import Any, get_args

from knowledgepulse_convert.common.ir import Message, Part

_KINDS: tuple[type[Part], ...] = get_args(Part)
_MEMBERS = {kind: [field.name for field in fields(kind)] for kind in _KINDS}


class PackedMessages(MutableSequence[Message]):
    """Messages that are kept as bytes, each of which is unpacked when it is asked for.

    With one dash, a text takes two bytes a character in Python, and four with one emoji; as UTF-8, it takes
    hardly more than one.
    """

    def __init__(self) -> None:
        self._packed: list[bytes] = []

    def __getitem__(self, index: Any) -> Any:
        found = self._packed[index]
        return list(map(_unpacked, found)) if isinstance(found, list) else _unpacked(found)

    def __setitem__(self, index: Any, message: Any) -> None:
        self._packed[index] = _packed(message)

    def __delitem__(self, index: Any) -> None:
        del self._packed[index]

    def __len__(self) -> int:
        return len(self._packed)

    def insert(self, index: int, message: Message) -> None:
        """Insert a message."""
        self._packed.insert(index, _packed(message))

    def reverse(self) -> None:
        """Turn the order around."""
        self._packed.reverse()


def _packed(message: Message) -> bytes:
    parts = [[_KINDS.index(type(part)), *_values(part)] for part in message.parts]
    at = message.at and message.at.isoformat()
    text = json.dumps([message.role, at, *parts], ensure_ascii=False)
    encoded = text.encode("utf-8", "surrogatepass")
    return bytes(memoryview(encoded))  # a copy: the first is a piece of a longer block, which stays in parts


def _unpacked(packed: bytes) -> Message:
    role, at, *parts = json.loads(packed.decode("utf-8", "surrogatepass"))
    return Message(
        role,
        tuple(_KINDS[kind](*values) for kind, *values in parts),
        None if at is None else datetime.fromisoformat(at),
    )


def _values(part: Part) -> list[Any]:
    return [getattr(part, name) for name in _MEMBERS[type(part)]]
