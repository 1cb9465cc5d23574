"""Logging to standard error: human-readable lines on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, TypeAlias

from knowledgepulse_kafka import CLIENT
from knowledgepulse_worker.errors import EXPECTED, exit_status_of

logger = logging.getLogger(__name__)

REPEAT_INTERVAL = 60.0
"""Seconds until a library may repeat a message."""

_OWN = tuple(
    f"knowledgepulse_{name}" for name in ("worker", "curator", "kafka", "bert", "convert", "schemas")
)
# This logger warns about ordinary rebalances, which the worker logs itself.
_WARNS_OF_REBALANCES = f"{CLIENT}.consumer.group_coordinator"

# Failed attempts of the Kafka client that are not worth a log line. A new cluster needs a few attempts to
# find the group's coordinator, and other messages report a lasting failure. If the first broker cannot be
# reached or a broker refuses the group's member or the producer, the caller reports it. That a password is
# sent in clear text is told once, of the setting.
_ATTEMPTS = (
    "Sending username and password in the clear",
    "Got error produce response on topic-partition %s, retrying. Error: %s",
    "Group Coordinator Request failed: %s",
    'Unable connect to "%s:%s": %s',
    "Attempt to join group failed due to fatal error: %s",
    "Unexpected error during InitProducerIdRequest: %s",
)

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class LogFormat(Protocol):
    """The settings of the section ``[log]``."""

    @property
    def level(self) -> str: ...  # noqa: D102 - as documented there, like the next one
    @property
    def format(self) -> str: ...  # noqa: D102


def configure(settings: LogFormat) -> None:
    """Log the worker's messages, and the library messages that an operator needs, to standard error.

    Libraries log every step, so their level is at least WARNING. If the worker's level is DEBUG, theirs is
    INFO, since the Kafka client logs whole records at DEBUG.
    """
    human = sys.stderr.isatty() if settings.format == "auto" else settings.format == "human"
    handler = logging.StreamHandler()
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    handler.addFilter(WithoutContent())
    handler.addFilter(RepeatFilter(CLIENT))
    handler.addFilter(RepeatFilter("opentelemetry"))
    ours = logging.getLevelNamesMapping()[settings.level]
    theirs = logging.INFO if ours == logging.DEBUG else max(ours, logging.WARNING)
    logging.basicConfig(handlers=[handler], level=theirs, force=True)
    for name in _OWN:
        logging.getLogger(name).setLevel(ours)
    logging.getLogger(_WARNS_OF_REBALANCES).setLevel(theirs if ours == logging.DEBUG else logging.ERROR)
    # OpenTelemetry's warnings quote producers' headers.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)
    # Otherwise, logging prints a message that it cannot format, and the message's arguments, unfiltered.
    logging.raiseExceptions = False
    threading.excepthook = _thread_ended
    sys.unraisablehook = _unraisable


def leave_out_attempts() -> None:
    """Silence the Kafka client's failed attempts, since the command reports the reason itself."""
    logging.getLogger(CLIENT).addFilter(_is_no_attempt)


@contextmanager
def errors_logged() -> Iterator[None]:
    """Log the error that ends the process, and end it with the error's exit status."""
    try:
        yield
    except EXPECTED as error:
        logger.error("%s", error)  # noqa: TRY400 - the message suffices without a traceback
        sys.exit(exit_status_of(error))
    except Exception:
        logger.critical("ended by an unexpected error", exc_info=True)
        sys.exit(1)


def _thread_ended(failure: threading.ExceptHookArgs) -> None:
    name = None if failure.thread is None else failure.thread.name
    logger.error("thread %s ended by an unexpected error", name, exc_info=failure.exc_value)


def _unraisable(failure: sys.UnraisableHookArgs) -> None:
    logger.error("unexpected error in a finaliser or callback", exc_info=failure.exc_value)


class _Formatter(logging.Formatter):
    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 - the base class's name
        """Return the text of :func:`format_error`, or an empty string if there is no exception."""
        return "" if ei[1] is None else format_error(ei[1])


class HumanFormatter(_Formatter):
    """Formats a record as a line with local time, level and message; a traceback follows on its own lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")


class JsonFormatter(_Formatter):
    """Formats a record as an ASCII line of JSON.

    The members are ``ts``, ``level``, ``logger`` and ``message``, and for an error also ``error`` and
    ``traceback``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "ts": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line |= {"error": type(error).__qualname__, "traceback": format_error(error)}
        # Strict JSON parsers reject lone surrogates.
        texts = {key: text.encode("utf-8", "backslashreplace").decode() for key, text in line.items()}
        return json.dumps(texts)


class WithoutContent(logging.Filter):
    """Removes the texts of unexpected errors from messages, since they may quote a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace errors among the arguments by their types; let every message through."""
        if isinstance(record.args, Mapping):
            record.args = {name: _without_content(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(map(_without_content, record.args))
        elif record.name == "asyncio":
            # The rest of the message shows futures with their errors and callbacks with their arguments.
            record.msg = str(record.msg).split("\n", 1)[0].split("(", 1)[0]
        return True


class RepeatFilter(logging.Filter):
    """Lets each message of a library through once a minute, since a client logs every attempt.

    Args:
        name: the library's logger; messages of other loggers always pass.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the message was not logged within :data:`REPEAT_INTERVAL`."""
        if not super().filter(record):
            return True
        if record.msg in _ATTEMPTS:
            return False
        since = record.created - self._logged.get(record.msg, -REPEAT_INTERVAL)
        if 0 <= since < REPEAT_INTERVAL:
            return False
        self._logged[record.msg] = record.created
        return True


def _is_no_attempt(record: logging.LogRecord) -> bool:
    return record.msg not in _ATTEMPTS


def format_error(error: BaseException) -> str:
    """Return an error's traceback, with those of its causes, but without the texts of unexpected errors.

    These may quote the record that caused them.
    """
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\nand then\n".join(map(_format_alone, reversed(chain)))


def _format_alone(error: BaseException) -> str:
    text = f": {error}" if _is_safe(error) else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    head = f"Traceback (most recent call last):\n{frames}{type(error).__qualname__}{text}"
    return "\n".join([head, *map(format_error, inner)])


def _is_safe(error: BaseException) -> bool:
    """Return whether an error's text never quotes a record.

    The worker's own errors never do. The operating system's errors name files and addresses. The Kafka
    client's errors name brokers and topics; those of its record parser do not leave
    :mod:`knowledgepulse_kafka.record_batches`.
    """
    return isinstance(error, (*EXPECTED, OSError)) or type(error).__module__ == f"{CLIENT}.errors"


def _without_content(value: Any) -> Any:
    if isinstance(value, BaseException) and not _is_safe(value):
        return type(value).__qualname__
    return value
