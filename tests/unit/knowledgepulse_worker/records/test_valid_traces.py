"""What one pass accepts, the schema accepts, too, and reads alike."""

import json
import re
from typing import Annotated

import msgspec
import pytest
from annotated_types import MultipleOf
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records import decode, valid_traces
from support.schema_cases import ACCEPTED, REFUSED, changed, full_document

LIMIT = 1_048_576
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+0-9.eE]+|true|false|null|[{}\[\],:]')
TOKENS = [
    *(b"null", b"true", b"0", b"1", b"-1", b"0.5", b"1.0", b"2.0", b"1e400", b"9" * 400, b"NaN"),
    *(b'""', b'"x"', b'"\\ud800"', b'"m\\u0065tadata":{},', b'"\\u0000"', b'"\xff"', b'"\xc3\xa9"'),
    *(b"{}", b"[]", b"[[", b"}", b",", b'"2026-01-31"', b'"2026-02-30T00:00:00Z"'),
    *(b'"quality_score":0.5,', b'"quality_score":null,', b'"metadata":{},', b'"input":null,', b'"input":3,'),
    *(b'"step_id":2.0,', b'"latency_ms":5,', b'"latency_ms":1e308,', b'"tool":null,', b'"tools":[{}],'),
    *(b'"models":[1],', b'"steps":[],', b'"span_context":{"trace_id":"a"},', b'"unknown":{"steps":1},'),
]
edits = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.sampled_from(["replace", "insert", "delete", "repeat"]),
        st.sampled_from(TOKENS),
    ),
    min_size=1,
    max_size=3,
)


def edited(value, edits):
    for where, edit, token in edits:
        places = list(TOKEN.finditer(value))
        start, end = places[where % len(places)].span()
        new = {"replace": token, "insert": token + value[start:end], "delete": b""}
        value = value[:start] + new.get(edit, 2 * value[start:end]) + value[end:]
    return value


def plain(read):
    """Return what a trace's attributes are, whatever their types."""
    if hasattr(read, "__struct_fields__"):
        return {name: plain(getattr(read, name)) for name in read.__struct_fields__}
    if isinstance(read, BaseModel):
        return {name: plain(getattr(read, name)) for name in type(read).model_fields}
    if isinstance(read, list):
        return [plain(each) for each in read]
    if isinstance(read, msgspec.Raw):
        return None if bytes(read) == b"null" else bytes(read)
    return read


def without_any(read):
    """Leave out what is read by no one: members of any type."""
    for members in (read["task"], *(read["task"]["tools"] or ())):
        members.pop("input_schema", None)
        members.pop("parameters", None)
    for name in ("rewards", "task_id"):
        read["metadata"].pop(name, None)
    return read


def slowly(monkeypatch, value):
    """Return what is read of a value by the schema."""
    with monkeypatch.context() as patch:
        patch.setattr(decode, "valid_trace", lambda _: None)
        return without_any(plain(decode.decode_trace(value, LIMIT)))


def check(monkeypatch, value):
    """Check that one pass refuses a value, or reads what the schema reads; return which."""
    if (valid := valid_traces.valid_trace(value)) is None:
        return False
    assert without_any(plain(valid.trace)) == slowly(monkeypatch, value)
    scored = decode.with_quality_score(value, 0.25)
    assert decode.with_quality_score(value, 0.25, valid.score_place) == scored
    return True


@pytest.mark.slow
@given(edits=edits)
@settings(max_examples=2_000)
def test_an_edited_trace_is_left_to_the_schema_or_read_alike(edits, monkeypatch_module):
    check(monkeypatch_module, edited(json.dumps(full_document()).encode(), edits))


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.mark.parametrize(
    "decoy",
    [
        '"metadata": {}, ',
        '"metadata": 5, ',
        '"m\\u0065tadata": {}, ',
        '"free": "metadata", "metadata": 5, ',
        '"free": "metadata", "m\\u0065tadata": 5, ',
        '"free": {"metadata": {}}, "m\\u0065tadata": {}, ',
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_second_metadata_is_left_to_the_schema(decoy, is_first):
    """A consumer that keeps the first of two members would read another score."""
    text = json.dumps(full_document())
    place = text.index('"metadata"') if is_first else text.index('"task"')
    value = (text[:place] + decoy + text[place:]).encode()

    assert valid_traces.valid_trace(value) is None
    with pytest.raises(InvalidRecordError, match="metadata"):
        decode.decode_trace(value, LIMIT)


@pytest.mark.parametrize("decoy", ['"quality_score": 0.5, ', '"quality\\u005fscore": 0.5, '])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_second_score_is_left_to_the_schema(decoy, is_first):
    text = json.dumps(changed(full_document(), "metadata/quality_score", 0.25))
    place = text.index('"quality_score"') if is_first else text.index('"task_domain"')
    value = (text[:place] + decoy + text[place:]).encode()

    assert valid_traces.valid_trace(value) is None
    with pytest.raises(InvalidRecordError, match="quality_score: appears more than once"):
        decode.decode_trace(value, LIMIT)


def test_a_mark_in_a_trace_does_not_hide_a_second_metadata():
    text = json.dumps(full_document())
    marked = '"metadata": {' + valid_traces._MARK.decode() + '"free": 1}, '
    place = text.index('"task"')

    assert valid_traces.valid_trace((text[:place] + marked + text[place:]).encode()) is None


@pytest.mark.parametrize(("path", "value"), [*REFUSED, ("metadata/created_at", "2026-02-30T00:00:00Z")])
def test_what_the_schema_refuses_is_left_to_it(path, value):
    assert valid_traces.valid_trace(json.dumps(changed(full_document(), path, value)).encode()) is None


@pytest.mark.parametrize(("path", "value"), ACCEPTED)
def test_what_the_schema_accepts_is_read_alike(monkeypatch, path, value):
    check(monkeypatch, json.dumps(changed(full_document(), path, value)).encode())


def test_every_real_trace_is_read_in_one_pass(monkeypatch, real_traces):
    """Otherwise it would take longer than before."""
    assert all(check(monkeypatch, value) for value in real_traces)


def test_a_constraint_of_the_schema_that_would_not_be_checked_is_an_error():
    class Model(BaseModel):
        count: Annotated[int, MultipleOf(2)]

    with pytest.raises(TypeError, match="would not be checked: MultipleOf"):
        valid_traces._struct(Model)


def test_a_trace_whose_members_are_refused_has_the_schema_s_reason(monkeypatch):
    value = json.dumps(changed(full_document(), "outcome/confidence", "high")).encode()
    with pytest.raises(InvalidRecordError, match=r"outcome.confidence: Input should be a valid number"):
        decode.decode_trace(value, LIMIT)
