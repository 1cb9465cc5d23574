"""The schema as tables for ``scan.c``, so that it is declared once.

A type that the scan cannot check becomes :attr:`Kind.UNKNOWN`, whose values it leaves to the decoder.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from enum import IntEnum, auto
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from knowledgepulse_schemas.trace import check_date_time
from knowledgepulse_worker.records.valid_traces import OF_NO_DOCUMENT, demands_of

SLOTS, COLUMNS = 16, ("type", "tool.name", "content", "input")
"""The number of members of a trace whose places the scan can tell, and the members of a step."""

_MOST_MEMBERS = 32
_PREFIX = re.compile(r"\^([\w:]+)")
_UNIONS = (Union, UnionType)


class Kind(IntEnum):
    """What a value must be; the order is that of ``scan.c``."""

    ANY = 0
    OBJECT = auto()
    MAP = auto()
    ARRAY = auto()
    STEPS = auto()
    TEXT = auto()
    NOT_EMPTY = auto()
    PREFIXED = auto()
    CHOICE = auto()
    DATE_TIME = auto()
    FLAG = auto()
    WHOLE = auto()
    REAL = auto()
    NOT_NEGATIVE = auto()
    SHARE = auto()
    UNKNOWN = auto()


_PLAIN: dict[tuple[Any, tuple[tuple[str, Any], ...]], Kind] = {
    (Any, ()): Kind.ANY,
    (bool, ()): Kind.FLAG,
    (int, (("ge", 0),)): Kind.WHOLE,
    (float, ()): Kind.REAL,
    (float, (("ge", 0),)): Kind.NOT_NEGATIVE,
    (float, (("ge", 0), ("le", 1))): Kind.SHARE,
}


class Member(NamedTuple):
    """A member of an object, one of a choice's texts, or a prefix."""

    name: str
    type: int = 0
    slot: int = -1


class _Schema(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("types", "members", "names")),
        *((name, ctypes.c_uint32) for name in ("recovery", "observation")),
    )


class Tables:
    """A schema's tables.

    Args:
        model: the schema of a trace.
        slots: the slots of its members, by their paths.

    Attributes:
        choices: the texts of each choice, by its path.
        pointer: what ``scan.c`` takes.
    """

    def __init__(self, model: type[BaseModel], slots: Mapping[str, int]) -> None:
        self.choices: dict[str, tuple[str, ...]] = {}
        self._slots = {**slots, **{f"steps.{name}": column for column, name in enumerate(COLUMNS)}}
        self._types: list[tuple[int, int, int, int, int]] = []
        self._members: list[Member] = []
        self._add(model, {}, "")
        columns = [*((name, "u2") for name in ("kind", "is_nullable", "first", "count")), ("required", "u4")]
        self._arrays = np.array(self._types, columns), *_members_of(self._members)
        kinds = (1 + self.choices["steps.type"].index(kind) for kind in ("error_recovery", "observation"))
        self._schema = _Schema(*(array.ctypes.data for array in self._arrays), *kinds)
        self.pointer = ctypes.addressof(self._schema)

    def _add(self, annotation: Any, demands: Mapping[str, Any], path: str) -> int:
        """Add a type, whose number is returned, with the types of its members and items."""
        parts = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
        kinds = [part for part in parts if part is not NoneType]
        number = len(self._types)
        self._types.append((Kind.UNKNOWN, 0, 0, 0, 0))
        if len(kinds) == 1:
            read = self._read(kinds[0], dict(demands), path)
            self._types[number] = (read[0], len(kinds) < len(parts), *read[1:])
        return number

    def _read(self, annotation: Any, demands: dict[str, Any], path: str) -> tuple[int, int, int, int]:
        """Return the kind of a type, the first and the number of its members, and which are required."""
        origin, arguments = get_origin(annotation), get_args(annotation)
        read: tuple[int, int, int, int]
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            read = self._object(annotation, path)
        elif origin is dict and not demands and arguments[0] is str:
            read = (Kind.MAP, self._add(arguments[1], {}, f"{path}.*"), 0, 0)
        elif origin is list and demands in ({}, {"min_length": 1}):
            kind = Kind.STEPS if path == "steps" else Kind.ARRAY
            read = (kind, self._add(arguments[0], {}, path), 0, len(demands))
        elif origin is Literal and all(isinstance(text, str) for text in arguments):
            self.choices[path] = arguments
            read = (Kind.CHOICE, *self._place([Member(text) for text in arguments]), 0)
        elif annotation is str:
            read = self._text(demands)
        else:
            read = (_PLAIN.get((annotation, (*sorted(demands.items()),)), Kind.UNKNOWN), 0, 0, 0)
        return read

    def _text(self, demands: dict[str, Any]) -> tuple[int, int, int, int]:
        match demands:
            case {"pattern": str(pattern)} if len(demands) == 1 and (prefix := _PREFIX.fullmatch(pattern)):
                return Kind.PREFIXED, *self._place([Member(prefix[1])]), 0
            case {"func": function} if len(demands) == 1 and function is check_date_time:
                return Kind.DATE_TIME, 0, 0, 0
        known = {(): Kind.TEXT, (("min_length", 1),): Kind.NOT_EMPTY}
        return known.get((*demands.items(),), Kind.UNKNOWN), 0, 0, 0

    def _object(self, model: type[BaseModel], path: str) -> tuple[int, int, int, int]:
        decorators, fields = model.__pydantic_decorators__, model.model_fields
        checks_more = decorators.field_validators or decorators.model_validators
        if checks_more or model.model_config.get("extra") != "allow" or len(fields) > _MOST_MEMBERS:
            return Kind.UNKNOWN, 0, 0, 0
        members = []
        for name, field in fields.items():
            place = f"{path}.{name}".lstrip(".")
            number = self._add(field.annotation, _demands(field), place)
            members.append(Member(field.alias or name, number, self._slots.get(place, -1)))
        required = sum(1 << bit for bit, field in enumerate(fields.values()) if field.is_required())
        return Kind.OBJECT, *self._place(members), required

    def _place(self, members: list[Member]) -> tuple[int, int]:
        self._members += members
        return len(self._members) - len(members), len(members)


def _demands(field: FieldInfo) -> dict[str, Any]:
    demands: dict[str, Any] = {}
    for constraint in field.metadata:
        demands |= demands_of(constraint)
    return {name: demand for name, demand in demands.items() if name not in OF_NO_DOCUMENT}


def _members_of(members: list[Member]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the members, and the bytes of all names."""
    names = [member.name.encode() for member in members]
    ends = np.cumsum([0, *map(len, names)]).tolist()
    rows = [
        (start, len(name), member.type, member.slot)
        for start, name, member in zip(ends, names, members, strict=False)
    ]
    columns = [("name", "u2"), ("length", "u2"), ("type", "u2"), ("slot", "i2")]
    return np.array(rows, columns), np.frombuffer(b"".join(names), np.uint8)
