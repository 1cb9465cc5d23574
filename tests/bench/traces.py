"""What goes through: the demo's real traces."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import worker.demo
from worker.scoring import embedding_text
from worker.stream.decode import decode_trace

STREAM_BYTES = 6000
"""The size of the records of the comparison with other clients."""


@cache
def real_traces() -> list[bytes]:
    return Path(worker.demo.__file__).with_name("real_traces.jsonl").read_bytes().splitlines()


@cache
def small_traces() -> list[bytes]:
    """The shortest tenth, where it is about counts and not about bytes."""
    traces = sorted(real_traces(), key=len)
    return traces[: len(traces) // 10]


def real_texts() -> list[str]:
    """What is embedded of each real trace."""
    return [embedding_text(decode_trace(trace, 2**24)) for trace in real_traces()]


def of_size(trace: bytes, size: int) -> bytes:
    """A trace cut or padded to a size, give or take a few bytes; it stays a valid one.

    Steps leave from the end, and the first one's content is cut or repeated.
    """
    document: dict[str, Any] = json.loads(trace)
    steps = document["steps"]
    while len(steps) > 1 and len(_dumped(document)) > size:
        steps.pop()
    content = str(steps[0].get("content") or document["task"]["objective"])
    steps[0]["content"] = ""
    room = size - len(_dumped(document))
    repeated = (content + " ") * (room // (len(content) + 1) + 1)
    steps[0]["content"] = repeated.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "/")
    steps[0]["content"] = "".join(one if one.isprintable() else " " for one in steps[0]["content"])[
        : max(0, room)
    ]
    return _dumped(document)


def _dumped(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
