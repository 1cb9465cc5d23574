"""A process that answers calls for its parent, which may end it in the middle of one.

``python -m knowledgepulse_worker.child FACTORY SECONDS``

It reads frames from standard input and answers each on standard output; a frame has its length in four bytes
(big-endian) before the content. The first frame is the argument of the factory ``module:function``, which
returns the function of the calls, from bytes to bytes. Its answer says whether that succeeded. Each further
frame is a call. An answer is :data:`RETURNED` with the result, or :data:`FAILED` with the class of the
error. The error's text is left out because it may quote the content.

The kernel ends a call that takes too long, since nothing else interrupts a regular expression.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import BinaryIO, TypeAlias

from knowledgepulse_worker.errors import SettingsError
from knowledgepulse_worker.function_reference import import_function

LENGTH_BYTES = 4
RETURNED, FAILED = b"+", b"-"
MAX_NAME = 100
"""Maximum characters of an error's class."""

ChildFunction: TypeAlias = Callable[[bytes], bytes]


def main(factory: str, seconds: float) -> None:
    """Answer until standard input ends.

    Args:
        factory: ``module:function``; returns the function of the calls, or raises a SettingsError.
        seconds: the time limit of a call.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the function's own prints must not mix with answers
    if (argument := _read(sys.stdin.buffer)) is None:
        return
    try:
        call: ChildFunction = import_function("child", factory)(argument)
    except SettingsError as error:
        _write(answers, FAILED + str(error).encode())
        return
    _write(answers, RETURNED)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while (content := _read(sys.stdin.buffer)) is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            answer = RETURNED + call(content)
        except Exception as error:  # noqa: BLE001 - a function of the user may raise anything
            answer = FAILED + type(error).__name__[:MAX_NAME].encode()
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(answers, answer)


def _read(stream: BinaryIO) -> bytes | None:
    length = stream.read(LENGTH_BYTES)
    return stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH_BYTES else None


def _write(stream: BinaryIO, answer: bytes) -> None:
    stream.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
