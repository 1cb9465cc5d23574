"""What Python's ``repr`` tells of objects that tracers cannot serialise."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

_OBJECTS = re.compile(r"(?:\{'messages': \[)?ChatMessage\(_role=|\[TaskOutput\(")
"""How messages of Haystack and the outputs of CrewAI's tasks begin."""
_NO_PYTHON = re.compile(
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|<[\w.]+: ('\w*'|\d+)>|<[^<>]*(?:<\w+>[^<>]*)?>""", re.DOTALL
)
"""A text, a member of an enumeration with its value, or an object that is no expression."""
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def parse_repr(value: Any) -> Any:
    """Return the objects that a text represents; any other value unchanged.

    An object has its members, and its class in snake case as its ``type``.
    """
    if not isinstance(value, str) or not _OBJECTS.match(value):
        return value
    text = _NO_PYTHON.sub(lambda found: found[1] or found[2] or "None", value)
    try:
        with warnings.catch_warnings(action="ignore"):
            return _plain(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return value


def _plain(node: ast.expr | None) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.UnaryOp(operand=operand):
            return f"-{_plain(operand)}"
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return list(map(_plain, items))
        case ast.Dict(keys=keys, values=values):
            return {str(_plain(key)): _plain(value) for key, value in zip(keys, values, strict=True)}
        case ast.Call(func=ast.Name(id=name), args=[], keywords=members):
            kind = _WORDS.sub("_", name).lower()
            return {"type": kind} | {str(each.arg).lstrip("_"): _plain(each.value) for each in members}
    raise ValueError("no value")
