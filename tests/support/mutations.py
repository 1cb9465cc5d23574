"""Mutations of files: values of other types, sizes and depths in their JSON or TOML, and damaged bytes."""

from __future__ import annotations

import copy
import gzip
import json
import random
from typing import Any


class Raw(str):
    """A token that is written as it is, since `json` would not write it."""

    __slots__ = ()


def _nested(depth: int) -> Raw:
    return Raw("[" * depth + "]" * depth)


VALUES: list[Any] = [
    *(None, True, False, 0, -1, 0.5, 2**63, -(2**63), 1e308, [], {}, [[]], [{}], [None], "", " ", "0"),
    *map(Raw, ("1e999", "-1e999", "NaN", "Infinity", "9" * 400, "9" * 5000, '"\\ud800"', '"\\u0000"')),
    *map(_nested, (150, 300, 900, 100_000)),
    Raw('{"a":' * 900 + "1" + "}" * 900),
    *("\x1b[31mred", "\u202e", "a\nb", "../../x", "/dev/zero", "é" * 300, "x" * 100_000, "/" * 20_000),
    *('[{"text": "x"}]', "[" * 20_000, "<function=x>" * 2000, "9999-12-31T23:59:59-14:00", "0000-00-00"),
    *(["x"] * 2000, {"a": {"b": [1]}}, {f"key{number}": number for number in range(500)}),
]
"""Values that producers do not mean to write."""

KEYS = ["", "id", "type", "\x00", "x" * 5000, "a\nb", "\x1b[2J", '"']


def mutated(random_: random.Random, value: Any) -> Any:
    """Return a copy of a JSON value with up to three of its parts changed."""
    holder = [copy.deepcopy(value)]
    for _ in range(random_.choice([1, 1, 2, 3])):
        places = list(_places(holder))
        parent, key = random_.choice(places)
        change = random_.randrange(6)
        if change < 3:
            parent[key] = copy.deepcopy(random_.choice(VALUES))
        elif change == 3:
            other, name = random_.choice(places)
            parent[key] = copy.deepcopy(other[name])
        elif change == 4 and parent is not holder:
            del parent[key]
        elif isinstance(parent, dict):
            parent[random_.choice(KEYS)] = parent.pop(key)
        else:
            parent[key : key + 1] = [parent[key]] * random_.choice([2, 300])
    return holder[0]


def damaged(random_: random.Random, content: bytes) -> bytes:
    """Return the bytes of a file with an accident of storage or transport; most of them unchanged."""
    at = random_.randrange(len(content) + 1)
    accidents = {
        0: lambda: content[:at],
        1: lambda: content[:at] + b"\0" * 1000 + content[at:],
        2: lambda: content[:at] + b"\xff" + content[at + 1 :],
        3: lambda: b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"),
        4: lambda: content.decode(errors="replace").encode("utf-16"),
        5: lambda: gzip.compress(content),
        6: lambda: content + content,
        7: lambda: random_.choice([b"", b"\n", b"null", b"PK\x03\x04", b"[" * 10**6, b" " * 10**6]),
    }
    return accidents.get(random_.randrange(32), lambda: content)()


def as_json(value: Any) -> str:
    """Return JSON, in which repeated keys, infinite numbers and the like are possible."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{as_json(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    return json.dumps(value)


def as_lines(value: Any) -> str:
    """Return the items of a list as JSON, one per line; anything else as one line."""
    return "".join(f"{as_json(item)}\n" for item in (value if isinstance(value, list) else [value]))


def as_toml(value: Any) -> str:
    """Return TOML, with tables inline; what is no object is no TOML, either."""
    if not isinstance(value, dict):
        return _inline(value)
    return "".join(f"{json.dumps(key)} = {_inline(member)}\n" for key, member in value.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(key)} = {_inline(member)}" for key, member in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return '""' if value is None else as_json(value).replace("NaN", "nan").replace("Infinity", "inf")


def _places(parent: Any) -> Any:
    """Yield each object or list in a value, with each of its keys or indexes."""
    if not isinstance(parent, dict | list):
        return
    for key in list(parent) if isinstance(parent, dict) else range(len(parent)):
        yield parent, key
        yield from _places(parent[key])
