"""Log formats, levels and filters, and what must never be logged."""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import io
import json
import logging
import re
import sys
import threading
import time
import tomllib
import warnings
from datetime import UTC, datetime
from pathlib import Path

import aiokafka.client
import aiokafka.consumer.group_coordinator
import aiokafka.producer.sender
import msgspec
import pytest
from aiokafka.errors import KafkaConnectionError
from hypothesis import example, given
from hypothesis import strategies as st

from knowledgepulse_kafka.errors import DeliveryError
from knowledgepulse_worker import logs
from knowledgepulse_worker.errors import StartError
from knowledgepulse_worker.logs import (
    HumanFormatter,
    JsonFormatter,
    RepeatFilter,
    configure,
    errors_logged,
    leave_out_attempts,
)
from knowledgepulse_worker.settings import LogSettings

ROOT = Path(__file__).parents[3]

CONTENT = "what an agent wrote"
LOGGERS = (None, *logs._OWN, "opentelemetry", logs._WARNS_OF_REBALANCES)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _logging_as_before():
    """Undo the process-wide effects of `configure`."""
    root, errors = logging.getLogger(), logging.raiseExceptions
    hooks = threading.excepthook, sys.unraisablehook
    filters = logging.getLogger("aiokafka").filters[:]
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in LOGGERS}
    yield
    logging.getLogger("aiokafka").filters[:] = filters
    logging.captureWarnings(capture=False)
    logging.raiseExceptions = errors
    threading.excepthook, sys.unraisablehook = hooks
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def record(
    message="owns %d partitions", *arguments, name="knowledgepulse_worker.stream.app", error=None, at=0.0
):
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord(name, logging.INFO, __file__, 1, message, arguments, info)
    made.created = at
    return made


def raised(error, cause=None):
    """Return the error as caught, with a traceback and its cause."""
    try:
        try:
            if cause is not None:
                raise cause
        finally:
            raise error
    except BaseException as caught:
        return caught


# --- JSON lines


@given(message=st.text(st.characters()), name=st.text())
@example(message="lone \ud800 \udfff, a pair \U00010000", name="worker")
@example(message="\n \r \x0b \x1c \x85 \u2028 \x00 \x1b", name="worker")
def test_a_json_line_is_one_line_of_strict_json_whatever_the_message(message, name):
    """Including lone surrogates, control characters and every kind of line break."""
    line = JsonFormatter().format(record("%s", message, name=name))

    assert len(line.splitlines()) == 1
    read = msgspec.json.decode(line)  # stricter than the standard library's
    assert read["message"].encode() == message.encode("utf-8", "backslashreplace")


@pytest.fixture
def _in_tokyo(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_in_tokyo")
def test_a_json_line_has_utc_time_level_and_logger():
    at = datetime(2026, 1, 31, 12, 0, 0, 250_999, UTC).timestamp()

    assert json.loads(JsonFormatter().format(record("owns %d partitions", 4, at=at))) == {
        "ts": "2026-01-31T12:00:00.250+00:00",
        "level": "INFO",
        "logger": "knowledgepulse_worker.stream.app",
        "message": "owns 4 partitions",
    }


def test_a_json_line_has_the_error_and_its_traceback_as_text():
    line = json.loads(JsonFormatter().format(record("failed", error=raised(DeliveryError("no answer")))))

    assert line["error"] == "DeliveryError"
    assert line["traceback"].startswith("Traceback (most recent call last):\n")
    assert "in raised" in line["traceback"]
    assert line["traceback"].endswith("DeliveryError: no answer")


def test_an_error_record_without_an_exception_has_no_traceback():
    """As Faust logs when it crashes outside an `except`."""
    empty = logging.LogRecord("faust", logging.ERROR, "", 1, "Crashed", (), (None, None, None))

    assert set(json.loads(JsonFormatter().format(empty))) == {"ts", "level", "logger", "message"}
    assert HumanFormatter().format(empty).endswith("Crashed")


# --- what an error says


@pytest.mark.parametrize("formatter", [JsonFormatter(), HumanFormatter()])
@pytest.mark.parametrize(
    "error",
    [
        raised(ValueError(CONTENT)),
        raised(DeliveryError("no answer"), cause=KeyError(CONTENT)),
        raised(ExceptionGroup(CONTENT, [DeliveryError("no answer"), UnicodeError(CONTENT)])),
    ],
)
def test_an_unexpected_error_s_text_is_left_out_since_it_may_be_content(formatter, error):
    line = formatter.format(record("failed", error=error))

    assert CONTENT not in line
    assert type(error).__name__ in line
    assert "in raised" in line


@pytest.mark.parametrize("form", ["%r", "%s", "%(error)r"])
@pytest.mark.parametrize(
    "error",
    [
        UnicodeDecodeError("utf-8", CONTENT.encode(), 0, 1, "invalid start byte"),
        ExceptionGroup(CONTENT, [DeliveryError("no answer"), KeyError(CONTENT)]),
    ],
)
def test_an_unexpected_error_s_text_is_left_out_of_a_library_s_message(form, error, capsys):
    """Faust logs `Crashed reason=%r` for every error that ends it."""
    configure(LogSettings())

    logging.getLogger("faust.source").error(
        f"Crashed reason={form}", {"error": error} if "(" in form else error
    )

    said = capsys.readouterr().err
    assert CONTENT not in said
    assert type(error).__name__ in said


def test_safe_errors_are_kept_in_a_library_s_message(capsys):
    configure(LogSettings())

    logging.getLogger("aiokafka").error("Failed fetch: %s", KafkaConnectionError("no broker at kafka:9092"))
    logging.getLogger("faust").error("Crashed reason=%r", OSError(111, "refused"))

    said = capsys.readouterr().err
    assert "no broker at kafka:9092" in said
    assert "refused" in said


async def test_an_unexpected_error_s_text_is_left_out_of_asyncio_s_messages(capsys):
    def fail(content):
        raise ValueError(content)

    async def fail_later():
        fail(CONTENT)

    configure(LogSettings())
    task = asyncio.create_task(fail_later())
    asyncio.get_running_loop().call_soon(fail, CONTENT)
    await asyncio.wait([task])
    del task
    gc.collect()

    said = capsys.readouterr().err
    assert "Task exception was never retrieved" in said
    assert "Exception in callback" in said
    assert "in fail" in said
    assert CONTENT not in said


def test_causes_and_grouped_errors_are_included():
    before = logs.format_error(raised(DeliveryError("no answer"), cause=OSError(111, "refused")))
    within = logs.format_error(raised(ExceptionGroup("two", [DeliveryError("no answer"), KeyError("x")])))

    assert re.findall(r"^(\w+Error.*)$", before, re.MULTILINE) == [
        "ConnectionRefusedError: [Errno 111] refused",
        "DeliveryError: no answer",
    ]
    assert re.findall(r"^(\w+(?:Error|Group).*)$", within, re.MULTILINE) == [
        "ExceptionGroup",
        "DeliveryError: no answer",
        "KeyError",
    ]


# --- where to, and from which level


@pytest.mark.parametrize(
    ("stream", "format_", "is_json"),
    [
        (Terminal, "auto", False),
        (io.StringIO, "auto", True),
        (Terminal, "json", True),
        (io.StringIO, "human", False),
    ],
)
def test_a_terminal_gets_human_readable_lines_and_anything_else_json(monkeypatch, stream, format_, is_json):
    monkeypatch.setattr(sys, "stderr", stream())
    configure(LogSettings(format=format_))
    logging.getLogger("knowledgepulse_worker.stream.worker").info("stopping")

    line = sys.stderr.getvalue()
    assert line.startswith("{") is is_json
    assert re.fullmatch(r'.*stopping("})?\n', line)


@pytest.mark.parametrize(
    ("level", "ours", "theirs", "rebalances"),
    [
        ("DEBUG", "DEBUG", "INFO", "INFO"),
        ("INFO", "INFO", "WARNING", "ERROR"),
        ("WARNING", "WARNING", "WARNING", "ERROR"),
        ("ERROR", "ERROR", "ERROR", "ERROR"),
    ],
)
def test_libraries_have_a_higher_level_than_the_worker(level, ours, theirs, rebalances):
    """They never get DEBUG, at which the Kafka client logs whole records."""
    configure(LogSettings(level=level))
    effective = {
        name: logging.getLevelName(logging.getLogger(name).getEffectiveLevel())
        for name in (
            "knowledgepulse_worker.lane.lane",
            "knowledgepulse_kafka.throttling",
            "aiokafka.producer.producer",
            "faust.app.base",
            "a.library",
            "aiokafka.consumer.group_coordinator",
            "opentelemetry.trace",
        )
    }

    assert list(effective.values()) == [ours, ours, theirs, theirs, theirs, rebalances, "ERROR"]


def test_each_package_of_the_wheel_has_the_worker_s_level():
    """`contributions send` was silent once it had moved to another package."""
    configure(LogSettings(level="INFO"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = [Path(path).name for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]

    assert len(packages) > 3
    assert {name for name in packages if not logging.getLogger(name).isEnabledFor(logging.INFO)} == set()


def test_a_message_that_cannot_be_formatted_is_not_shown_raw(capsys):
    configure(LogSettings())
    logging.getLogger("faust").error("%d failed", CONTENT)

    logging.getLogger("faust").error("%d failed", 3)

    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == ["3 failed"]


def test_warnings_are_logged(capsys):
    configure(LogSettings())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("old", DeprecationWarning, "library.py", 1)

    assert "DeprecationWarning: old" in json.loads(capsys.readouterr().err)["message"]


# --- clients that log every attempt


def test_a_library_s_message_is_logged_at_most_once_a_minute():
    seldom = RepeatFilter("aiokafka")

    def passes(at, node=1, name="aiokafka.client", message="Unable connect to node %s"):
        return seldom.filter(record(message, node, name=name, at=at))

    assert passes(100)
    assert not passes(100.1, node=2)
    assert not passes(159.9)
    assert passes(101, message="Topic %s is not authorized")
    assert passes(160)
    assert not passes(160.1)
    assert passes(50), "the clock was put back"
    assert all(passes(at, name="knowledgepulse_worker.process.supervisor") for at in (200, 200.1))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (aiokafka.producer.sender, "Got error produce response on topic-partition %s, retrying. Error: %s"),
        (aiokafka.producer.sender, "Unexpected error during InitProducerIdRequest: %s"),
        (aiokafka.consumer.group_coordinator, "Group Coordinator Request failed: %s"),
        (aiokafka.consumer.group_coordinator, "Attempt to join group failed due to fatal error: %s"),
        (aiokafka.client, 'Unable connect to "%s:%s": %s'),
    ],
)
def test_the_kafka_client_s_failed_attempts_are_not_logged(module, message):
    constants = [
        node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Constant)
    ]
    assert message in [constant.value for constant in constants], "the client says it in other words now"
    assert not RepeatFilter("aiokafka").filter(record(message, name="aiokafka"))


def test_a_command_s_kafka_client_logs_no_failed_attempts(caplog):
    leave_out_attempts()
    client = logging.getLogger("aiokafka")
    client.error('Unable connect to "%s:%s": %s', "localhost", 1, "no broker answers")
    client.error("Topic %s is not authorized", "raw")
    assert [record.getMessage() for record in caplog.records] == ["Topic raw is not authorized"]


# --- what ends the process


def test_an_error_of_ours_ends_the_process_with_one_line(capsys):
    configure(LogSettings())
    with pytest.raises(SystemExit) as end, errors_logged():
        raise StartError("topics.raw: missing\ntopics.rejected: missing")

    assert end.value.code == StartError.exit_status
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["message"]) == ("ERROR", "topics.raw: missing\ntopics.rejected: missing")
    assert "traceback" not in line


def in_the_main_thread():
    with pytest.raises(SystemExit, match=r"^1$"), errors_logged():
        raise ValueError(CONTENT)


def in_a_thread():
    def fail():
        raise ValueError(CONTENT)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def in_a_finaliser():
    class Broken:
        def __del__(self):
            raise ValueError(CONTENT)

    Broken()


@pytest.mark.parametrize("fail", [in_the_main_thread, in_a_thread, in_a_finaliser])
def test_an_unexpected_error_is_logged_with_its_traceback_and_without_its_text(capsys, fail):
    """The Kafka client's consumer runs in a thread."""
    configure(LogSettings())
    fail()

    output = capsys.readouterr().err
    line = json.loads(output)
    assert line["error"] == "ValueError"
    assert __file__ in line["traceback"]
    assert CONTENT not in output
