"""Traces with random edits: of tokens, of bytes and of runs of bytes."""

from __future__ import annotations

import random
import re

from support.traces import real_traces

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+0-9.eE]+|true|false|null|[{}\[\],:]', re.DOTALL)
_TOKENS = [
    *(
        b"null",
        b"true",
        b"false",
        b"0",
        b"1",
        b"-1",
        b"-0",
        b"-0.0",
        b"0.5",
        b"1.0",
        b"2.0",
        b"01",
        b"1.",
        b".5",
    ),
    *(b"1e400", b"1e5", b"1E-2", b"9" * 30, b"0." + b"3" * 40, b"1.000", b"1.0001", b"NaN", b"-", b"+1"),
    *(b'""', b'"x"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\ude00\\ud83d"', b'"\\u0000"', b'"\xff"'),
    *(
        b'"\xc3\xa9"',
        b'"\xed\xa0\x80"',
        b'"\xf0\x9f\x98\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xc0\x80"',
        b'"\\x"',
        b'"\\',
    ),
    *(b"{}", b"[]", b"[[", b"}", b"]", b",", b":", b'"', b"\\", b" ", b"\n", b"\0", b"\x7f", b"\x0b"),
    *(
        b'"2026-01-31"',
        b'"2026-02-30T00:00:00Z"',
        b'"0001-01-01T00:00:00Z"',
        b'"2024-02-29T23:59:59.123456Z"',
    ),
    *(
        b'"2026-01-31T24:00:00Z"',
        b'"2026-01-31t12:00:00z"',
        b'"2026-01-31T12:00Z"',
        b'"2026-01-31T12:00:00,5Z"',
    ),
    *(b'"quality_score":0.5,', b'"quality_score":null,', b'"quality\\u005fscore":0.5,', b'"metadata":{},'),
    *(b'"m\\u0065tadata":{},', b'"input":null,', b'"input":3,', b'"input":{"a":[1,{}]},', b'"step_id":2.0,'),
    *(
        b'"latency_ms":5,',
        b'"latency_ms":1e308,',
        b'"latency_ms":-0.0,',
        b'"tool":null,',
        b'"tool":{"name":"a"},',
    ),
    *(
        b'"tool":{"name":"\\u0061"},',
        b'"tools":[{}],',
        b'"tools":[{"name":"a"}],',
        b'"models":[1],',
        b'"steps":[],',
    ),
    *(
        b'"span_context":{"trace_id":"a"},',
        b'"unknown":{"steps":1},',
        b'"knowledge_graph_delta":{"entities":[]},',
    ),
    *(
        b'"content":"\\n",',
        b'"\\u00e9\\n\\u4e2d\\ud83d\\ude00\\u0000x"',
        b'"type":"thought",',
        b'"agent_id":"\\"",',
        b'"framework":null,',
        b'"id":"kp:trace:1",',
    ),
]


def edited(source: random.Random, value: bytes) -> bytes:
    """Return a trace with one to three edits."""
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        value = source.choice((_edited_tokens, _edited_tokens, _edited_bytes))(source, value)
    return value


def _edited_tokens(source: random.Random, value: bytes) -> bytes:
    found, other = (_TOKEN.search(value, source.randrange(len(value) + 1)) for _ in range(2))
    if found is None or other is None:
        return value
    start, end = found.span()
    new = source.choice((source.choice(_TOKENS), source.choice(_TOKENS), other[0], b""))
    return value[:start] + new + (value[end:] if source.random() < 0.5 else value[start:])


def _edited_bytes(source: random.Random, value: bytes) -> bytes:
    at = source.randrange(len(value) + 1)
    run = value[at : at + source.randrange(1, 60)]
    new = source.choice((bytes([source.randrange(256)]), run + run, b"", source.choice(_TOKENS)))
    return value[:at] + new + value[at + source.choice((0, 1, len(run))) :]


def short_traces() -> list[bytes]:
    """Return the real traces that are edited soonest."""
    return sorted(real_traces(), key=len)[:60]
