"""Records that a broker accepts but no producer should write, grouped by the defects that they used to cause.

Each kind is a function that builds record batches byte by byte, with traces from the given function.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from support.batches import ENCODERS, Record, blanks, by_hand

KiB, MiB = 2**10, 2**20
GZIP, ZSTD = 1, 4
YEAR_MS = 365 * 86_400_000
YEAR_9999_MS = 253_402_300_799_000
FIRST_NUMBER = 10**9
"""Of hostile traces, so that their ids are no others'."""

MakeTrace = Callable[[], tuple[bytes, bytes]]
"""Returns the key and the value of a trace whose id is its own."""


class Batch(NamedTuple):
    """A record batch and the number of its records."""

    data: bytes
    records: int


Kind = Callable[[MakeTrace], Sequence[Batch]]


def codecs(make: MakeTrace) -> list[Batch]:
    """Write batches compressed with each of Kafka's codecs."""
    return [_batch([_trace(make), _trace(make)], codec) for codec in ENCODERS]


def ids(make: MakeTrace) -> list[Batch]:
    """Write traces that differ only in ids of hundreds of kilobytes, and so are nearest to each other."""
    same = make()
    names = ["a" * 600 * KiB, "b" * 600 * KiB, "c" * 900 * KiB]
    return [
        _batch([_changed(lambda: same, lambda trace, name=name: trace.update(id=f"kp:trace:{name}"))])
        for name in names
    ]


def keys(make: MakeTrace) -> list[Batch]:
    """Write keys and headers that exceed any output's limit, or that just fit the raw topic's limit."""
    key, value = make()
    zeros = b"\0" * 3 * MiB
    return [
        _batch([(key, value, [(b"zeros", zeros)])], GZIP),
        _batch([(zeros, value, [])], GZIP),
        _batch([(zeros, b"no trace", [(b"zeros", zeros)])], GZIP),
        _batch([(b"k" * 1000 * KiB, b"no trace", [])]),
    ]


def names(make: MakeTrace) -> list[Batch]:
    """Write header names that are not UTF-8, among valid records."""
    key, value = make()
    headers = [(b"fine", b"1"), ("\N{SNOWMAN}".encode("utf-16"), b"2"), (b"\xff", None)]
    return [_batch([_trace(make), (key, value, headers), _trace(make)], codec) for codec in (0, ZSTD)]


def timestamps(make: MakeTrace) -> list[Batch]:
    """Write timestamps before 1970, in the year 9999 and at the end of the integer's range."""
    times = (YEAR_9999_MS, 2**63 - 2, -2, -YEAR_MS, 0)
    return [_batch([_trace(make)], timestamp=at) for at in times]


def old(make: MakeTrace) -> list[Batch]:
    """Write traces with timestamps a year ago."""
    return [_batch([_trace(make) for _ in range(20)], timestamp=_now() - YEAR_MS)]


def values(make: MakeTrace) -> list[Batch]:
    """Write values whose validation is slow or large: a megabyte of errors, members, steps or nesting."""
    size = 1000 * KiB
    members = ",".join(f'"{n}":0' for n in range(size // 10))
    step = '{"step_id":0,"type":"thought"}'
    texts = [
        '{"steps":[' + "0," * (size // 2) + "0]}",
        "{" + members + "}",
        _text(make, '"steps"', '"x":{' + members + '},"steps"'),
        _text(make, '"steps":[', '"steps":[' + (step + ",") * (size // len(step))),
        "[" * size,
        '{"a":' * 190 + "1" * (size // 2) + "}" * 190,
        _text(make, '"metadata":', '"quality_score":0.5,' * (size // 25) + '"metadata":'),
    ]
    return [_batch([(b"k", text.encode()[: 1024 * KiB], [])]) for text in texts]


def bombs(make: MakeTrace) -> list[Batch]:
    """Write half a gigabyte of blanks in some kilobytes, and a batch that inflates to the permitted size."""
    almost = [(b"k", b" " * MiB, [])] * 60
    bomb = by_hand([(0, b"k", None, [])], ZSTD, compressed=blanks(500 * MiB))
    return [_batch([_trace(make)]), Batch(bomb, 1), _batch(almost, ZSTD), _batch([_trace(make)])]


def mixed(make: MakeTrace) -> list[Batch]:
    """Write records of every kind."""
    kinds = (codecs, ids, keys, names, timestamps, old, values, bombs)
    return [batch for kind in kinds for batch in kind(make)]


_Content = tuple[bytes, bytes, Sequence[tuple[bytes, bytes | None]]]


def _batch(contents: Sequence[_Content], codec: int = 0, timestamp: int | None = None) -> Batch:
    records: list[Record] = [
        (delta, key, value, headers) for delta, (key, value, headers) in enumerate(contents)
    ]
    return Batch(by_hand(records, codec, timestamp=_now() if timestamp is None else timestamp), len(records))


def _trace(make: MakeTrace) -> _Content:
    return (*make(), [])


def _changed(make: MakeTrace, change: Callable[[dict[str, Any]], None]) -> _Content:
    key, value = make()
    trace = json.loads(value)
    change(trace)
    return key, json.dumps(trace).encode(), []


def _text(make: MakeTrace, old_text: str, new_text: str) -> str:
    """Return a small trace with a part of its text replaced."""
    small = _changed(make, lambda trace: trace.update(steps=[{"step_id": 0, "type": "thought"}]))[1].decode()
    return json.dumps(json.loads(small), separators=(",", ":")).replace(old_text, new_text, 1)


def _now() -> int:
    return time.time_ns() // 1_000_000
