"""Read what a score takes of a trace in one pass, in C.

``scan.c`` checks a trace by tables of the schema and finds its parts. It accepts only what the schema
accepts, with the same values. Each doubt is left to :mod:`.decode`, and so is everything where the worker was
installed without a C compiler.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable
from ctypes import string_at
from functools import lru_cache
from pathlib import Path
from struct import Struct

import msgspec

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.trace import Ending, PrivacyLevel, Visibility
from knowledgepulse_worker.records.scan_tables import COLUMNS, SLOTS, Tables
from knowledgepulse_worker.records.valid_traces import Range, read_ending
from knowledgepulse_worker.scoring import Scorable, Shape, text_in_parts

_PATHS = (
    *("id", "task.objective", "outcome.confidence", "metadata", "metadata.quality_score"),
    *("metadata.task_domain", "metadata.success", "metadata.visibility", "metadata.privacy_level"),
    *("metadata.agent_id", "metadata.framework", "metadata.ending"),
)
_ROWS = 1024
_FOUND = Struct(f"=5I{2 * len(_PATHS)}I")
_SIZE = 4 * (5 + 2 * SLOTS + _ROWS * (2 * len(COLUMNS) + 1))


_LARGE = 2**20
_NAME = b'"ReasoningTrace"'

_TEXT_BYTES = 8192
"""The size of the longest text of steps that the scan writes: less than is read of it."""


class ScannedMetadata(msgspec.Struct, gc=False):
    """The members of a trace's metadata that are read."""

    task_domain: str
    success: bool
    visibility: Visibility
    privacy_level: PrivacyLevel
    agent_id: str | None
    framework: str | None
    ending: Ending | None


class _Buffer(threading.local):
    """Where the scan of a thread puts what it finds.

    Attributes:
        value: the value in which it has found that; None if it is none that it accepts.
    """

    def __init__(self) -> None:
        self.value: bytes | None = None
        self.found = ctypes.create_string_buffer(_SIZE)
        self.address = ctypes.addressof(self.found)
        self.text = ctypes.create_string_buffer(_TEXT_BYTES)


_buffer = _Buffer()


def scan(value: bytes) -> tuple[Scorable, Range] | None:
    """Return what a score takes of a trace, and the place of the score; None if that takes a closer look.

    Args:
        value: a record's value.
    """
    if not _is_scanned(value):
        return None
    # fmt: off
    (
        escaped, steps, types, recoveries, tools,
        id_start, id_end, objective_start, objective_end, confidence_start, confidence_end,
        members_start, _, score_start, score_end,
        domain_start, domain_end, success, _, visibility, _, privacy_level, _,
        agent_start, agent_end, framework_start, framework_end, ending_start, ending_end,
    ) = _unpack(_buffer.found)
    # fmt: on
    metadata = ScannedMetadata(
        _text(value[domain_start:domain_end], escaped & _DOMAIN),
        success == 1,
        _VISIBILITIES[visibility],
        _PRIVACY_LEVELS[privacy_level],
        _text(value[agent_start:agent_end], escaped & _AGENT) if agent_start else None,
        _text(value[framework_start:framework_end], escaped & _FRAMEWORK) if framework_start else None,
        read_ending(value[ending_start:ending_end]) if ending_start else None,
    )
    trace = Scorable(
        value[id_start:id_end].decode(),
        metadata,
        _text(value[objective_start:objective_end], escaped & _OBJECTIVE),
        float(value[confidence_start:confidence_end]),
        _shape(steps, types, recoveries, tools),
    )
    return trace, (score_start, score_end) if score_start else (members_start + 1, members_start + 1)


def _is_scanned(value: bytes) -> bool:
    _buffer.value = None
    if len(value) > _LARGE and _NAME not in value:  # found sooner than a scan ends
        return False
    if _scan is None or not _scan(value, len(value), _TABLES.pointer, _buffer.address):
        return False
    _buffer.value = value
    return True


def is_trace(value: bytes) -> bool:
    """Return whether a value is a trace, with any number of steps; false if that takes a closer look."""
    _buffer.value = None
    return bool(_check is not None and _check(value, len(value), _TABLES.pointer, _buffer.address))


def _text(part: bytes, is_escaped: int) -> str:
    if is_escaped:
        text: str = json.loads(b'"%s"' % part)
        return text
    return part.decode()


@lru_cache(4096)
def _shape(steps: int, types: int, recoveries: int, tools: int) -> Shape:
    names = [name for bit, name in enumerate(_TABLES.choices["steps.type"]) if types >> bit & 1]
    return Shape(steps, frozenset(names), recoveries, tools)


def scan_words(value: bytes, objective: str) -> str | None:
    """Return a text with exactly the words of ``scoring.words_text``; None if that takes a closer look.

    Args:
        value: a value that :func:`scan` has accepted.
        objective: the trace's objective.
    """
    if _buffer.value is not value and not _is_scanned(value):
        return None
    size = _write_steps(value, len(value), _TABLES.pointer, _buffer.address, _buffer.text, _TEXT_BYTES)
    return None if size < 0 else text_in_parts(objective, string_at(_buffer.text, size).decode())


def _compiled() -> ctypes.CDLL | None:
    """Return the compiled library; None where the worker was installed without a C compiler."""
    file = Path(__file__).with_name("scan.so")
    if not file.exists():
        return None
    library = ctypes.PyDLL(str(file))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.scan_trace.argtypes = [ctypes.c_char_p, size, pointer, pointer]
    library.check_trace.argtypes = library.scan_trace.argtypes
    library.steps_text.restype = ctypes.c_ssize_t
    library.steps_text.argtypes = [ctypes.c_char_p, size, pointer, pointer, ctypes.c_char_p, size]
    return library


_library = _compiled()
_scan = None if _library is None else _library.scan_trace
_check = None if _library is None else _library.check_trace
_write_steps: Callable[..., int] = getattr(_library, "steps_text", lambda *_: -1)
_TABLES = Tables(ReasoningTrace, {path: slot for slot, path in enumerate(_PATHS)})
_VISIBILITIES = ("", *_TABLES.choices["metadata.visibility"])
_PRIVACY_LEVELS = ("", *_TABLES.choices["metadata.privacy_level"])
_OBJECTIVE, _DOMAIN, _AGENT, _FRAMEWORK = (
    1 << _PATHS.index(path)
    for path in ("task.objective", "metadata.task_domain", "metadata.agent_id", "metadata.framework")
)
_unpack = _FOUND.unpack_from
