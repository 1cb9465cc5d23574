"""The traces to process, made from the real ones."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.scoring import embedding_text
from support.traces import real_traces

_OBJECTIVE = re.compile(rb'"objective": ?"')

STREAM_BYTES = 6000
"""Record size of the comparison with other clients."""


def real_texts() -> list[str]:
    """Return the embedded texts of the real traces, nearly all longer than the model's window."""
    return [embedding_text(decode_trace(trace, 2**24)) for trace in real_traces()]


def mixed_texts() -> list[str]:
    """Return the beginnings of the real texts, with about 16 to 256 tokens, like the texts of short runs."""
    random = np.random.default_rng(0)
    return [" ".join(text.split()[: random.integers(8, 150)]) for _ in range(8) for text in real_texts()]


def endless_texts(lengths: str = "full") -> Iterator[str]:
    """Yield ``full`` or ``mixed`` texts forever, made unique because repeated texts would not be embedded."""
    texts = {"full": real_texts, "mixed": mixed_texts}[lengths]()
    return (f"{number} {text}" for number, text in enumerate(itertools.cycle(texts)))


def endless_traces(traces: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the traces forever, each time with a unique objective."""
    for number, trace in enumerate(itertools.cycle(traces)):
        yield _OBJECTIVE.sub(rb"\g<0>%d " % number, trace, count=1)


def of_size(trace: bytes, size: int) -> bytes:
    """Return a trace truncated or padded to approximately a size; it stays valid.

    Steps are removed from the end, and the content of the first step is cut or repeated.
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
    steps[0]["content"] = "".join(
        character if character.isprintable() else " " for character in steps[0]["content"]
    )[: max(0, room)]
    return _dumped(document)


def _dumped(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
