"""The traces to process, made from the real ones."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from support.traces import real_traces
from worker.records.decode import decode_trace
from worker.scoring import embedding_text

_OBJECTIVE = re.compile(rb'"objective": ?"')

STREAM_BYTES = 6000
"""Record size of the comparison with other clients."""


@cache
def small_traces() -> list[bytes]:
    """Return the shortest tenth of the traces, for measurements of counts rather than bytes."""
    traces = sorted(real_traces(), key=len)
    return traces[: len(traces) // 10]


def real_texts() -> list[str]:
    """Return the embedded texts of the real traces."""
    return [embedding_text(decode_trace(trace, 2**24)) for trace in real_traces()]


def endless_texts() -> Iterator[str]:
    """Yield the texts repeatedly, each made unique, as repeated texts would not be embedded."""
    return (f"{number} {text}" for number, text in enumerate(itertools.cycle(real_texts())))


def endless_traces(traces: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the traces repeatedly, each with a unique objective."""
    for number, trace in enumerate(itertools.cycle(traces)):
        yield _OBJECTIVE.sub(rb"\g<0>%d " % number, trace, count=1)


def of_size(trace: bytes, size: int) -> bytes:
    """Return a trace truncated or padded to approximately a size; it stays valid.

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
