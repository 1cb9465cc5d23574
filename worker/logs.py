"""Logging to standard error: lines for people on a terminal, JSON lines elsewhere."""

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
from typing import TYPE_CHECKING, Any, TypeAlias

from worker.errors import WorkerError

if TYPE_CHECKING:  # `kp-worker --help` need not wait for pydantic
    from worker.settings import LogSettings

logger = logging.getLogger(__name__)

SELDOM = 60.0
"""Seconds until a client may say the same again."""

# These warn of ordinary rebalances, which the worker logs itself.
_WARNS_OF_REBALANCES = ("aiokafka.consumer.group_coordinator", "faust.tables.recovery")

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
    handler.addFilter(WithoutContent())
    handler.addFilter(Seldom("aiokafka"))
    handler.addFilter(Seldom("opentelemetry"))
    handler.addFilter(_is_no_bad_request)
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


def leave_out_attempts() -> None:
    """Have Kafka's client log none of its attempts: a command's own error tells why they fail."""
    logging.getLogger("aiokafka").addFilter(_is_no_attempt)


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


class WithoutContent(logging.Filter):
    """Removes what may quote a record from messages: the texts of unexpected errors."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Put an error's type for the error among the arguments; let every message through."""
        if isinstance(record.args, Mapping):
            record.args = {name: _without_content(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(map(_without_content, record.args))
        elif record.name == "asyncio":
            # What follows shows futures with their errors, and callbacks with their arguments.
            record.msg = str(record.msg).split("\n", 1)[0].split("(", 1)[0]
        return True


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


def _is_no_attempt(record: logging.LogRecord) -> bool:
    return record.msg not in _ATTEMPTS


def _is_no_bad_request(record: logging.LogRecord) -> bool:
    """Return False for a request that is no HTTP: its client is told, and anybody can send millions."""
    if record.name != "aiohttp.server" or record.exc_info is None:
        return True
    from aiohttp.http_exceptions import HttpProcessingError  # noqa: PLC0415 - `--help` need not wait for it

    return not isinstance(record.exc_info[1], HttpProcessingError)


def told(error: BaseException) -> str:
    """Return an error's traceback, with those of the errors before it, but without what they say.

    An unexpected error's text may quote the record that it came upon: it is left out.
    """
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "\nand then\n".join(map(_told_alone, reversed(chain)))


def _told_alone(error: BaseException) -> str:
    text = f": {error}" if _is_safe(error) else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    head = f"Traceback (most recent call last):\n{frames}{type(error).__qualname__}{text}"
    return "\n".join([head, *map(told, inner)])


def _is_safe(error: BaseException) -> bool:
    """Return whether an error's text quotes no record.

    Ours are written to be read, the operating system's name files and addresses, and the Kafka client's name
    brokers and topics: its record parser's errors stay in :mod:`worker.kafka.record_batches`.
    """
    return isinstance(error, WorkerError | OSError) or type(error).__module__ == "aiokafka.errors"


def _without_content(value: Any) -> Any:
    if isinstance(value, BaseException) and not _is_safe(value):
        return type(value).__qualname__
    return value


def _well_formed(text: str) -> str:
    """Return the text with lone surrogates escaped, which strict readers of JSON refuse."""
    return text.encode("utf-8", "backslashreplace").decode()
