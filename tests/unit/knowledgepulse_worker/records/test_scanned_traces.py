"""What the scan accepts, the decoder accepts, too, and reads alike."""

import json
import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal

import pytest
from annotated_types import MultipleOf
from pydantic import BaseModel, ConfigDict, Field, field_validator

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records import decode, scanned_traces
from knowledgepulse_worker.records.scan_tables import Kind, Tables
from knowledgepulse_worker.records.scanned_traces import ScannedMetadata, is_trace, scan, scan_words
from knowledgepulse_worker.scoring import PART_SEPARATOR, scorable, words_text
from knowledgepulse_worker.scoring.words import words_of
from support.edited_traces import edited, short_traces
from support.schema_cases import ACCEPTED, REFUSED, changed, full_document

LIMIT = 16_777_216
EDITS = 3_000
SECONDS = os.environ.get("FUZZ_SECONDS", "0")

needs_compiler = pytest.mark.skipif(scanned_traces._scan is None, reason="installed without a C compiler")


def plain(trace):
    """Return what is read of a trace, whatever its types."""
    metadata = {name: getattr(trace.metadata, name) for name in ScannedMetadata.__struct_fields__}
    return trace.id, trace.objective, trace.confidence, trace.shape, metadata


def check(value):
    """Check that the scan is in doubt, or reads what the decoder reads; return which."""
    is_whole = is_trace(value) and decode.decode_trace(value, LIMIT) is not None
    if (scanned := scan(value)) is None:
        return False
    assert is_whole
    trace, place = scanned
    assert plain(trace) == plain(scorable(decode.decode_trace(value, LIMIT)))
    assert decode.with_quality_score(value, 0.25, place) == decode.with_quality_score(value, 0.25)
    if (text := scan_words(value, trace.objective)) is not None:
        assert words_in(text) == words_in(words_text(decode.decode_trace(value, LIMIT)))
    return True


def words_in(text):
    """Return how often each part of a text has each word."""
    return [Counter(words_of(part)) for part in text.split(PART_SEPARATOR)]


@pytest.mark.timeout(300 + float(SECONDS))
@needs_compiler
def test_an_edited_trace_is_left_to_the_decoder_or_read_alike():
    """`make fuzz SECONDS=600` goes on for that time."""
    source, end = random.Random(1), monotonic() + float(SECONDS)
    documents = [*short_traces(), json.dumps(full_document()).encode()]
    accepted = edits = 0
    while edits < EDITS or monotonic() < end:
        value = edited(source, source.choice(documents))
        edits += 1
        try:
            accepted += check(value)
        except (AssertionError, InvalidRecordError) as error:
            raise AssertionError(f"edit {edits}: {value!r}") from error

    print(f"{edits} edited traces, {accepted} of them accepted")
    assert accepted > edits / 10


@needs_compiler
def test_no_real_trace_needs_the_decoder(real_traces):
    """Otherwise it would take longer than before."""
    assert all(check(value) for value in real_traces)


@needs_compiler
@pytest.mark.parametrize(("path", "value"), ACCEPTED)
def test_what_the_schema_accepts_is_accepted(path, value):
    assert check(json.dumps(changed(full_document(), path, value)).encode())


@pytest.mark.parametrize(("path", "value"), REFUSED)
def test_what_the_schema_refuses_is_left_to_it(path, value):
    assert scan(json.dumps(changed(full_document(), path, value)).encode()) is None


@pytest.mark.parametrize(
    ("change", "by"),
    [
        ('"metadata"', '"m\\u0065tadata"'),
        ('"metadata"', '"metadata": {}, "metadata"'),
        ('"task_domain"', '"quality_score": 0.1, "task_domain"'),
        ('"Fix the build"', '"\\ud800"'),
        ('"shell", "mcp', '"sh\\u0065ll", "mcp'),
        ("0.9", "9e-1"),
        ("2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00+00:00"),
    ],
)
@needs_compiler
def test_a_doubt_is_left_to_the_decoder(change, by):
    text = json.dumps(full_document())
    assert check(text.encode())
    assert text.count(change) == 1

    assert scan(text.replace(change, by).encode()) is None


@needs_compiler
@pytest.mark.parametrize("count", [1024, 1025])
def test_steps_and_tools_without_room_are_left_to_the_decoder(count):
    steps = [
        {"step_id": 0, "type": "tool_call", "tool": {"name": f"tool {number % 64}"}}
        for number in range(count)
    ]
    document = changed(full_document(), "steps", steps)

    assert check(json.dumps(document).encode()) == (count == 1024)
    assert not check(json.dumps(changed(document, "steps/0/tool/name", "one more")).encode())
    assert is_trace(json.dumps(document).encode())


@needs_compiler
def test_a_trace_without_a_tool_and_one_whose_tool_has_no_name_differ():
    document = changed(full_document(), "steps/1/tool/name", "")

    assert scan(json.dumps(document).encode())[0].shape.tools == 1
    assert scan(json.dumps(changed(document, "steps/1/tool", None)).encode())[0].shape.tools == 0


@pytest.mark.parametrize("depth", [90, 150, 300, 100_000])
def test_deep_members_are_read_alike_or_left_to_the_decoder(depth):
    nested = "[" * depth + "]" * depth
    check(json.dumps(full_document()).replace('"make lock"', nested).encode())


@needs_compiler
def test_the_words_of_escaped_and_nested_texts_are_those_of_the_decoder():
    step = {
        "step_id": 0,
        "type": "tool_call",
        "content": 'quoted "words"\n\tand \u00e9\U0001f600/\b\f\\ends\u0000here',
        "tool": {"name": ""},
        "input": {"a\nb": [None, True, -1.5e3, "null", {"\u4e2d\u6587": "x\\ny"}], "null": None},
    }
    observations = [
        {"step_id": 1, "type": "observation", "content": "seen", "tool": {"name": "shell"}},
        {"step_id": 2, "type": "observation", "content": "said"},
        {"step_id": 3, "type": "error_recovery", "input": {}},
    ]
    document = changed(full_document(), "steps", [step, *observations])
    for value in (json.dumps(document).encode(), json.dumps(document, ensure_ascii=False).encode()):
        assert scan_words(value, "Fix it") is not None
        assert check(value)


def test_a_trace_is_scorable_without_the_library(monkeypatch, real_traces):
    """As where the worker was installed without a C compiler."""
    with_library = [decode.decode_scorable(value, LIMIT).scorable for value in real_traces]
    monkeypatch.setattr(scanned_traces, "_scan", None)

    without = [decode.decode_scorable(value, LIMIT) for value in real_traces]

    assert [plain(trace.scorable) for trace in without] == [plain(trace) for trace in with_library]
    assert all(trace.trace is not None for trace in without)


def test_what_a_guard_reads_is_scanned():
    assert set(Policy().guards) <= set(ScannedMetadata.__struct_fields__)


class Refusing(BaseModel):
    @field_validator("name", check_fields=False)
    @classmethod
    def _check(cls, name: str) -> str:
        raise ValueError(name)


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (str, Kind.TEXT),
        (str | None, Kind.TEXT),
        (Annotated[str, Field(min_length=1)], Kind.NOT_EMPTY),
        (Annotated[str, Field(min_length=2)], Kind.UNKNOWN),
        (Annotated[str, Field(pattern="^a:")], Kind.PREFIXED),
        (Annotated[str, Field(pattern="a.*")], Kind.UNKNOWN),
        (Annotated[str, Field(max_length=9)], Kind.UNKNOWN),
        (Annotated[float, Field(ge=0, le=1)], Kind.SHARE),
        (Annotated[float, Field(gt=0)], Kind.UNKNOWN),
        (Annotated[int, MultipleOf(2)], Kind.UNKNOWN),
        (int, Kind.UNKNOWN),
        (int | str, Kind.UNKNOWN),
        (Literal["a", 1], Kind.UNKNOWN),
        (dict[str, float], Kind.MAP),
        (dict[int, float], Kind.UNKNOWN),
        (list[str], Kind.ARRAY),
        (Annotated[list[str], Field(max_length=3)], Kind.UNKNOWN),
        (Refusing, Kind.UNKNOWN),
        (Closed, Kind.UNKNOWN),
        (Any, Kind.ANY),
    ],
)
def test_a_member_that_cannot_be_checked_is_left_to_the_decoder(annotation, kind):
    class Trace(ReasoningTrace):
        more: annotation

    tables = Tables(Trace, {})

    more = next(member for member in tables._members if member.name == "more")
    assert tables._types[more.type][0] == kind


@pytest.mark.timeout(300 + float(SECONDS))
@pytest.mark.slow
def test_sanitizers_find_nothing_in_any_value(tmp_path):
    """The values end at a byte that may not be read, but for the zero behind them."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    include = f"-I{Path(scanned_traces.__file__).parent}"
    program = Path(__file__).with_name("fuzz_scan.c")
    subprocess.run(
        [compiler, "-std=c11", "-O1", "-g", *checks, include, program, "-o", tmp_path / "fuzz"], check=True
    )
    (tmp_path / "traces").write_bytes(b"\n".join([*short_traces(), json.dumps(full_document()).encode()]))
    tables = scanned_traces._TABLES
    for name, array in zip(("types", "members", "names"), tables._arrays, strict=True):
        (tmp_path / name).write_bytes(array.tobytes())

    ran = subprocess.run(
        [tmp_path / "fuzz", tmp_path, "1", SECONDS], check=False, capture_output=True, text=True
    )

    assert ran.returncode == 0, ran.stderr[-3000:]
