"""The process that calls the redaction function.

``python -m knowledgepulse_worker.redaction.child FUNCTION SECONDS``

It reads traces from standard input and answers each on standard output. Traces and answers are frames, each
with its length in four bytes (big-endian) before the content. An answer is :data:`REDACTED` with the
function's result as JSON, or :data:`FAILED` with the class of its error. The error's text is left out because
it may quote the trace. Before the first trace, an answer says whether the function could be imported.

The kernel ends a call that takes too long, since nothing else interrupts a regular expression.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from knowledgepulse_worker.callables import import_callable
from knowledgepulse_worker.errors import SettingsError

SETTING = "redaction.function"
LENGTH = 4
REDACTED, FAILED = b"+", b"-"
MAX_NAME = 100
"""Maximum characters of an error's class."""


def main(name: str, seconds: float) -> None:
    """Answer until standard input ends.

    Args:
        name: the function as ``module:function``.
        seconds: the time limit of a call.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the function's own prints must not mix with answers
    try:
        function = _load(name)
    except SettingsError as error:
        _write(answers, FAILED + str(error).encode())
        return
    _write(answers, REDACTED)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while (trace := _read(sys.stdin.buffer)) is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        answer = _answer(function, trace)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(answers, answer)


def _load(name: str) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = import_callable(SETTING, name)
    if inspect.iscoroutinefunction(function):
        raise SettingsError(f"{SETTING}: {name}: is an async function; use a regular function")
    return function


def _answer(function: Callable[[Any], Any], trace: bytes) -> bytes:
    try:
        redacted = json.dumps(function(json.loads(trace)), ensure_ascii=False, allow_nan=False)
    except Exception as error:  # noqa: BLE001 - the user's function may raise anything
        return FAILED + type(error).__name__[:MAX_NAME].encode()
    return REDACTED + redacted.encode("utf-8", "replace")


def _read(stream: BinaryIO) -> bytes | None:
    length = stream.read(LENGTH)
    return stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH else None


def _write(stream: BinaryIO, answer: bytes) -> None:
    stream.write(len(answer).to_bytes(LENGTH, "big") + answer)
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
