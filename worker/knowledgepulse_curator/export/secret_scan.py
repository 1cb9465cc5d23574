"""Find keys and tokens in traces with the detectors of `detect-secrets` that recognise their form.

Findings are not verified, so nothing is sent anywhere. The library's other detectors are not used: those that
judge by entropy find something in 134 of 154 real traces, and those that judge by names of variables in none.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, Self

from knowledgepulse_worker.extras import extra

SCAN_LIMIT = 10.0
"""Seconds per trace; some of the patterns take time that is quadratic in the length of a line."""

_START_LIMIT = 60.0
"""Seconds for a process to load the detectors."""

_GUESSING = {"Base64HighEntropyString", "HexHighEntropyString", "IPPublicDetector", "KeywordDetector"}


@cache
def detectors() -> list[Any]:
    """Load the detectors; raise a MissingExtraError if `detect-secrets` is not installed."""
    with extra("secrets"):
        from detect_secrets.core.plugins.util import (  # noqa: PLC0415 - optional
            get_mapping_from_secret_type_to_class as known,
        )
    kinds: dict[str, Any] = known()
    return [kind() for kind in kinds.values() if kind.__name__ not in _GUESSING]


def has_secret(value: bytes) -> bool:
    """Return whether a detector finds something in a text of a trace's JSON."""
    # Python refuses to convert numbers of more than 4,300 digits, and none is looked at.
    return any(
        True
        for text in _texts(json.loads(value, object_pairs_hook=list, parse_int=lambda _: 0))
        for line in text.splitlines()
        for detector in detectors()
        for _ in detector.analyze_string(line)
    )


class Scanner:
    """Looks for secrets in a separate process, since nothing else can interrupt a regular expression.

    A context manager. The process starts with the first trace, and again after a trace that took too long.
    """

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, value: bytes) -> bool | None:
        """Return whether a trace has a secret; None if the scan takes longer than :data:`SCAN_LIMIT`."""
        try:
            if self._process is None:
                self._start()
            self._pipe.send_bytes(value)
            if self._pipe.poll(SCAN_LIMIT):
                answer: bool | None = self._pipe.recv()
                return answer
        except (EOFError, OSError):  # the process was killed, for example because of its memory
            pass
        self._end()
        return None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy other threads' locks
        self._pipe, theirs = context.Pipe()
        process = context.Process(target=_scan, args=(theirs,), daemon=True)
        process.start()  # fails where no more processes are allowed
        self._process = process
        theirs.close()
        if self._pipe.poll(_START_LIMIT):
            self._pipe.recv()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _scan(pipe: Connection) -> None:
    """Answer requests until the pipe is closed."""
    detectors()
    pipe.send(True)
    while True:
        try:
            value = pipe.recv_bytes()
        except EOFError:
            return
        try:
            pipe.send(has_secret(value))
        except Exception:  # noqa: BLE001 - a detector of the library failed
            pipe.send(None)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of JSON whose objects are lists of pairs, since a name may occur twice in an object."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _texts(member)
