"""Logging to standard error: lines for people on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import TypeAlias

from worker.errors import WorkerError
from worker.settings import LogSettings

logger = logging.getLogger(__name__)

SELDOM = 60.0
"""Seconds until a client may say the same again."""

# These warn of what belongs to a rebalance, of which we tell ourselves; after an error they cannot go on.
# Faust's messages come under the names of the modules where its classes are subclassed.
_WARNS_OF_REBALANCES = (
    "aiokafka.consumer.group_coordinator",
    "worker.stream.consumer",
    "worker.stream.recovery",
    "worker.stream.store",
)

# Attempts of the Kafka client that need no line. To find the group's coordinator: a new cluster takes a few
# until it has one, and where they go on to fail, other messages say why. To reach the first broker: who asked
# for it says so.
_ATTEMPTS = ("Group Coordinator Request failed: %s", 'Unable connect to "%s:%s": %s')

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


def configure(settings: LogSettings) -> None:
    """Send what the worker logs to standard error, and of other libraries what an operator needs.

    They tell each step of theirs, so they begin at WARNING; at INFO where we begin at DEBUG, since at DEBUG
    the Kafka client logs whole records.
    """
    human = sys.stderr.isatty() if settings.format == "auto" else settings.format == "human"
    handler = logging.StreamHandler()
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    handler.addFilter(Seldom("aiokafka"))
    handler.addFilter(Seldom("opentelemetry"))
    ours = logging.getLevelNamesMapping()[settings.level]
    theirs = logging.INFO if ours == logging.DEBUG else max(ours, logging.WARNING)
    logging.basicConfig(handlers=[handler], level=theirs, force=True)
    logging.getLogger("worker").setLevel(ours)
    for name in _WARNS_OF_REBALANCES:
        logging.getLogger(name).setLevel(theirs if ours == logging.DEBUG else logging.ERROR)
    # It warns of producers' headers, and quotes them.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)
    # A message that cannot be formatted would be shown raw, with its arguments.
    logging.raiseExceptions = False
    threading.excepthook = _thread_ended
    sys.unraisablehook = _unraisable


@contextmanager
def errors_logged() -> Iterator[None]:
    """Log the error that ends the process, and end it with the error's exit status."""
    try:
        yield
    except WorkerError as error:
        logger.error("%s", error)  # noqa: TRY400 - it is written for a person; where it was raised is not
        sys.exit(error.exit_status)
    except Exception:
        logger.critical("ended by an unexpected error", exc_info=True)
        sys.exit(1)


def _thread_ended(failure: threading.ExceptHookArgs) -> None:
    name = None if failure.thread is None else failure.thread.name
    logger.error("thread %s ended by an unexpected error", name, exc_info=failure.exc_value)


def _unraisable(failure: sys.UnraisableHookArgs) -> None:
    logger.error("an unexpected error where nobody can be told", exc_info=failure.exc_value)


class _Formatter(logging.Formatter):
    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 - the base class's name
        """Return what :func:`told` does; empty where there is no exception."""
        return "" if ei[1] is None else told(ei[1])


class HumanFormatter(_Formatter):
    """A line for people: local time, level, message; a traceback on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")


class JsonFormatter(_Formatter):
    """A JSON object a line, in ASCII: ts, level, logger, message; error and traceback where there is one."""

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
            line |= {"error": type(error).__qualname__, "traceback": told(error)}
        return json.dumps({key: _well_formed(text) for key, text in line.items()})


class Seldom(logging.Filter):
    """Lets each kind of a library's messages through once a minute: a client tells of every attempt.

    Args:
        name: of the library's logger; what others log passes.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether it has not been let through within :data:`SELDOM`."""
        if not super().filter(record):
            return True
        if record.msg in _ATTEMPTS:
            return False
        since = record.created - self._told.get(record.msg, -SELDOM)
        if 0 <= since < SELDOM:
            return False
        self._told[record.msg] = record.created
        return True


def told(error: BaseException) -> str:
    """Return an error's traceback, with those of the errors before it, but without what they say.

    An unexpected error's text may quote the record that it came upon: it is left out. Ours are written to be
    read, and the operating system's name files and addresses.
    """
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "\nand then\n".join(map(_told_alone, reversed(chain)))


def _told_alone(error: BaseException) -> str:
    text = f": {error}" if isinstance(error, WorkerError | OSError) else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    head = f"Traceback (most recent call last):\n{frames}{type(error).__qualname__}{text}"
    return "\n".join([head, *map(told, inner)])


def _well_formed(text: str) -> str:
    """Return the text with lone surrogates escaped, which strict readers of JSON refuse."""
    return text.encode("utf-8", "backslashreplace").decode()
