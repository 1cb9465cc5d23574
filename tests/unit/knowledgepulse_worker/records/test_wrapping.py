"""Traces inside values: found, scored as if they were bare, and edited where they are."""

import json
from base64 import b64decode

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode import decode_scorable, decode_whole, with_quality_score
from knowledgepulse_worker.records.output_headers import trace_of, unwrapped, worker_headers
from knowledgepulse_worker.records.wrapping import Edit, Wrapping, layers_of, read_wrapping, trace_in
from knowledgepulse_worker.scoring import Scorer
from support.schema_cases import full_document
from support.wrapped import plain_trace, wrapped_records

LIMIT = 2**20
TRACE = json.loads(plain_trace())
TEXT = plain_trace().decode()
ALL = ("frame", "/data", "/payload", "/after/payload", "text")
STEPS = {
    "confluent-json-prefix/own-schema": ("frame",),
    "confluent-json-prefix/loose-draft7": ("frame",),
    "apicurio-json-default": ("frame",),
    "cloudevents-structured": ("/data",),
    "cloudevents-java-structured/application_json": ("/data",),
    "connect-json-schema-string": ("/payload", "text"),
    "connect-json-schema-struct": ("/payload",),
    "connect-file-line/schemas-enable-true": ("/payload", "text"),
    "connect-file-line/schemas-enable-false": ("text",),
    "debezium-outbox/expand-true/schemas-true": ("/payload",),
    "debezium-outbox/expand-false/schemas-false": ("text",),
    "debezium-envelope": ("/after/payload", "text"),
    "outbox-envelope": ("/payload",),
    "json-in-a-json-string": ("text",),
}


# --- every way to write a text, and every chain

_SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


@st.composite
def json_texts(draw, text: str) -> str:
    """Return a JSON string that holds a text, with any of the spellings that JSON allows."""
    chance = draw(st.randoms(use_true_random=False))

    def spelled(character: str) -> str:
        code = character.encode("utf-16-be").hex()
        escaped = "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
        if character in '"\\' or character < " ":
            return chance.choice([_SHORT.get(character, escaped), escaped])
        return chance.choices([character, escaped, _SHORT.get(character, character)], [20, 1, 1])[0]

    return f'"{"".join(map(spelled, text))}"'


NAMES = st.sampled_from(["before", "id", "datA", "source", "x/y", "@id", "a~b", ""])
VALUES = st.sampled_from(
    ["null", "1e400", '"data"', '{"data":{"@type":"Other"}}', '["\\ud800"]', '"\\"payload\\":{"', "{}"]
)


@st.composite
def objects(draw, name: str, member: str) -> str:
    """Return an object that has the member among others, which may look like it."""
    others = draw(st.lists(st.tuples(NAMES, VALUES), max_size=4, unique_by=lambda pair: pair[0]))
    members = [f"{json.dumps(other)}{draw(SPACES)}:{value}" for other, value in others]
    quoted = draw(json_texts(name))
    members.insert(draw(st.integers(0, len(members))), f"{quoted}:{draw(SPACES)}{member}{draw(SPACES)}")
    return f"{draw(SPACES)}{{{','.join(members)}}}"


SPACES = st.sampled_from(["", " ", "\n\t"])


@st.composite
def wrapped(draw, trace: str):
    """Return a value in which a trace is wrapped in one to three steps, and the steps."""
    steps: list[str] = []
    content, count = trace, draw(st.integers(1, 3))
    while len(steps) < count:
        step = draw(st.sampled_from(ALL))
        if step == "frame":
            content = content.strip()
            prefix = draw(st.sampled_from([b"\0\0\0\0\x03", b'\0\x7b\0"\x01', b"\0\0\0\0\0\0\0\0\x09"]))
            return prefix + content.encode(), ("frame", *steps)
        if step == "text":
            content = draw(json_texts(content))
        else:
            for name in reversed(step[1:].split("/")):
                content = draw(objects(name, content))
        steps.insert(0, step)
    return content.encode(), tuple(steps)


def traces():
    """Traces with and without a score, some with texts that look like what wraps them."""
    contents = st.sampled_from(
        ['{"data": "\\" \\\\', '"quality_score":1,', "größer 🎈", "\ud800", "a/b\n", "\0"]
    )
    documents = st.sampled_from([TRACE, full_document()])
    return st.builds(
        _trace, documents, contents, st.booleans(), st.sampled_from([None, (",", ":")]), st.booleans()
    )


def _trace(document, content, has_score, separators, is_ascii):
    document = msgspec.json.decode(msgspec.json.encode(document))
    document["metadata"].pop("quality_score", None)
    if has_score:
        document["metadata"]["quality_score"] = 0.125
    document["steps"][0]["content"] = content
    assume(is_ascii or "\ud800" not in content)
    return json.dumps(document, separators=separators, ensure_ascii=is_ascii)


@given(traces().flatmap(lambda trace: st.tuples(st.just(trace), wrapped(trace))))
def test_a_trace_scores_the_same_bare_and_wrapped_to_the_last_bit(drawn):
    trace, (value, steps) = drawn
    bare, inside = decode_whole(trace.encode(), LIMIT), decode_whole(value, LIMIT, ALL)

    assert inside.steps == steps
    assert inside.content.strip() == trace.encode()
    scorer, other = Scorer(), Scorer()
    for decoded in (bare, bare):
        expected = scorer.evaluate(decoded.trace)
    for decoded in (inside, inside):
        assert decoded.trace.id == bare.trace.id
        score = other.evaluate(decoded.trace)
    assert score == expected
    assert (
        decode_scorable(value, LIMIT, ALL).scorable.shape
        == decode_scorable(trace.encode(), LIMIT).scorable.shape
    )


@given(traces().flatmap(lambda trace: st.tuples(st.just(trace), wrapped(trace))), st.floats(0, 1))
def test_only_the_score_changes_in_a_wrapped_output_and_all_else_keeps_its_bytes(drawn, score):
    trace, (value, steps) = drawn
    read = decode_scorable(value, LIMIT, ALL)
    output = with_quality_score(value, score, read.score_place, read.steps)
    bare = with_quality_score(trace.encode(), score)

    assert trace_in(output, steps).strip() == bare
    assert with_quality_score(value, score, None, steps) == output
    assert with_quality_score(trace_in(value, steps), score).strip() == bare
    # What stands before and behind the one change is the input's.
    start = next((at for at, (a, b) in enumerate(zip(value, output, strict=False)) if a != b), len(value))
    end = len(value) - start
    while not output[start:].endswith(value[len(value) - end :]):
        end -= 1
    # Each text may write a character as six of its own.
    assert len(value) - start - end <= 6 ** steps.count("text") * len("0.125")
    assert decode_whole(output, LIMIT, ALL).trace.metadata.quality_score == score


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_score_in_a_text_takes_its_escaped_bytes_and_the_limit_counts_the_escaped_value(levels):
    objective = {**TRACE["task"], "objective": 'größer "als"'}
    trace = value = json.dumps({**TRACE, "task": objective}, ensure_ascii=False)
    member = '"quality_score":0.5,'
    for _ in range(levels):
        value, member = json.dumps(value, ensure_ascii=False), json.dumps(member)[1:-1]
    content = value.encode()

    read = decode_whole(content, len(content), ["text"])
    output = with_quality_score(content, 0.5, read.score_place, read.steps)

    assert (len(output) - len(content), output.count(member.encode())) == (len(member), 1)
    assert trace_in(output, read.steps) == with_quality_score(trace.encode(), 0.5)
    with pytest.raises(InvalidRecordError, match="trace_bytes"):
        decode_whole(content, len(content) - 1, ["text"])


@given(st.text(), st.data())
def test_an_edit_of_a_text_is_found_in_its_string_whatever_is_escaped(text, data):
    string = data.draw(json_texts(text)).encode()
    assume("".join(text) < "\ud800" or not any("\ud800" <= c <= "\udfff" for c in text))
    (layer,) = layers_of(string, ("text",))
    at, to = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    start, end = len(text[:at].encode()), len(text[:to].encode())

    edited = layer.outward(Edit(start, end, b'"new"')).of(string)

    assert json.loads(edited) == f'{text[:at]}"new"{text[to:]}'


# --- what is recorded


@pytest.mark.parametrize("form", STEPS)
def test_a_recorded_form_is_read_if_its_steps_are_allowed_and_only_then(form):
    value, steps = wrapped_records()[form].value, STEPS[form]

    assert decode_scorable(value, LIMIT, ALL).steps == steps
    assert decode_scorable(value, LIMIT, steps).scorable.id == TRACE["id"]
    for step in steps:
        with pytest.raises(InvalidRecordError):
            decode_scorable(value, LIMIT, [other for other in ALL if other != step])


def test_every_other_recorded_form_is_read_as_before_whatever_is_allowed():
    for form, record in wrapped_records().items():
        if form not in STEPS:
            results = []
            for unwrap in ((), ALL):
                try:
                    results.append(decode_scorable(record.value, LIMIT, unwrap).scorable)
                except InvalidRecordError as error:
                    results.append((error.reason, error.form, str(error)))
            assert results[0] == results[1], form


# --- what is never unwrapped

INVALID = {name: member for name, member in TRACE.items() if name != "outcome"}


@pytest.mark.parametrize(
    "value",
    [
        {**INVALID, "data": TRACE},
        {**INVALID, "payload": TEXT},
        {"@context": TRACE["@context"], "data": TRACE},
        {"@context": ["https://schema.org", TRACE["@context"]], "data": TRACE},
        {"@type": "ReasoningTrace", "data": TRACE},
        {"@type": ["Event", "ReasoningTrace"], "after": {"payload": TRACE}},
        '{"@type": "ReasoningTrace", "@type": "Event", "data": ' + TEXT + "}",
        '{"@\\u0074ype": "Reasoning\\u0054race", "data": ' + TEXT + "}",
        {"data": {**INVALID, "data": TRACE}},
        {"data": TRACE, "payload": TRACE},
        {"data": TRACE, "payload": TEXT},
        {"data": TRACE, "after": {"payload": TRACE}},
        {"data": {"data": TRACE, "payload": TRACE}},
        '{"data": ' + TEXT + ', "data": ' + TEXT + "}",
        '{"data": 1, "d\\u0061ta": ' + TEXT + "}",
        '{"data": ' + TEXT + ', "data": 1}',
        {"data": [TRACE]},
        {"data": {"data": {"data": {"data": TRACE}}}},
        json.dumps(json.dumps(json.dumps(json.dumps(TEXT)))),
        {"Data": TRACE, "data ": TRACE, "/data": TRACE},
        {"note": '"data":' + TEXT},
        '{"data": ' + TEXT + "} ,",
        '{"data": ' + TEXT + '} {"data": 1}',
        b'{"data": ' + TEXT.encode() + b', "x": "\xff"}',
        b"\0\0\0\0\1\x02" + TEXT.encode(),
        b"\0\0\0\0\1 " + TEXT.encode(),
        b"\1\0\0\0\1" + TEXT.encode(),
        b"\0\0\0\1" + TEXT.encode(),
        b"\0\0\0\0\1" * 2 + TEXT.encode(),
        b"\0\0\0\0\1\0\n\x85\5" + TEXT.encode(),
        b"\0\0\0\0\0\0\0\0\0" + TEXT.encode(),
        b"\0\0\0\0\1\0\0\0\2" + TEXT.encode(),
        b"\0\0\0\0\1" + TEXT.encode() + b"\xff",
    ],
)
def test_what_may_not_be_unwrapped_is_a_dead_letter_whatever_is_allowed(value):
    if not isinstance(value, bytes):
        value = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    with pytest.raises(InvalidRecordError):
        decode_scorable(value, LIMIT, ALL)


@given(st.integers(1, 2**32 - 1), st.integers(0, 2**20), st.sampled_from([b"", b"\0", b"\2\0"]))
@example(0x7B, 128, b"\0")
def test_a_text_in_avro_or_protobuf_is_not_taken_for_json_behind_a_long_prefix(schema_id, more, indexes):
    """A registry's prefix, then a length of three or four bytes before the brace: nine bytes in all."""
    length = more + len(TEXT)
    varint = bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14 & 127 | 128, length >> 21])
    for lead in (indexes + b"\n" + varint[:2], varint, varint[:3]):
        value = b"\0" + schema_id.to_bytes(4) + lead + TEXT.encode()
        with pytest.raises(InvalidRecordError):
            decode_scorable(value, LIMIT, ALL)


def test_the_limit_of_bytes_counts_the_value():
    value = json.dumps({"data": TRACE}).encode()

    assert decode_scorable(value, len(value), ["/data"]).steps == ("/data",)
    with pytest.raises(InvalidRecordError) as caught:
        decode_scorable(value, len(value) - 1, ["/data"])
    assert caught.value.reason == "too_large"


def test_a_trace_is_read_at_the_depth_at_which_it_is_read_bare():
    deep = {**TRACE, "free": json.loads("[" * 200 + "]" * 200)}
    deeper = {**TRACE, "free": json.loads("[" * 201 + "]" * 201)}

    assert decode_scorable(json.dumps(deep).encode(), LIMIT)
    for step, wrap in (("/data", lambda trace: {"data": trace}), ("text", json.dumps)):
        assert decode_scorable(json.dumps(wrap(deep)).encode(), LIMIT, [step])
        with pytest.raises(InvalidRecordError):
            decode_scorable(json.dumps(wrap(deeper)).encode(), LIMIT, [step])


@pytest.mark.parametrize(
    ("unwrap", "steps"),
    [
        (["/after/payload", "/after", "/payload"], ("/after/payload",)),
        (["/after", "/payload", "/after/payload"], ("/after", "/payload")),
        (["/after", "/after/payload"], ("/after/payload",)),
    ],
)
def test_a_trace_that_several_ways_reach_is_read_by_the_first_that_is_allowed(unwrap, steps):
    value = json.dumps({"after": {"payload": TRACE}}).encode()

    assert decode_scorable(value, LIMIT, unwrap).steps == steps


@pytest.mark.parametrize("pointer", ["/event/trace", "/a~1b", "/a~0b", "/é"])
def test_any_member_may_be_allowed(pointer):
    content = TRACE
    for name in reversed(pointer[1:].split("/")):
        content = {name.replace("~1", "/").replace("~0", "~"): content}
    value = json.dumps(content).encode()

    assert decode_scorable(value, LIMIT, [pointer]).steps == (pointer,)


# --- outputs


def output(value, *more, own=()):
    ours = (("kp-source", b"raw/0/0"), ("kp-score", b"{}"), ("kp-policy", b"p"))
    return RawRecord("contribute", 0, 0, 0, None, value, (*own, *ours, *more))


def test_the_trace_of_an_output_is_without_its_wrapping_and_the_producers_headers_are_not_believed():
    value = json.dumps({"data": TRACE}).encode()
    same, bare = ("kp-wrapping", b"same /data"), ("kp-wrapping", b"bare /data")

    assert json.loads(trace_of(output(value, same))) == TRACE
    assert json.loads(trace_of(output(value, same, ("kp-timestamp", b"5")))) == TRACE
    assert unwrapped(output(value, same, own=[same])) == output(trace_in(value, ("/data",)), own=[same])
    for unchanged in (
        output(value),
        output(value, own=[same]),
        output(value, bare),
        output(value, ("kp-wrapping", b"same /other")),
        output(value, ("kp-wrapping", b"other /data")),
        output(value, ("kp-wrapping", None)),
        RawRecord("contribute", 0, 0, 0, None, value, (same,)),
    ):
        assert trace_of(unchanged) == value
    assert worker_headers(output(value, bare).headers).wrapping == Wrapping("bare", ("/data",))


@pytest.mark.parametrize(
    "wrapping", [Wrapping("same", ("frame", "/after/payload", "text")), Wrapping("bare", ("text",))]
)
def test_the_header_says_how_a_value_was_read(wrapping):
    assert read_wrapping(wrapping.header()) == wrapping


@given(
    st.none()
    | st.binary()
    | st.lists(st.sampled_from(["same", "bare", *ALL, ""])).map(" ".join).map(str.encode)
)
def test_any_header_is_read_or_refused(header):
    wrapping = read_wrapping(header)

    assert wrapping is None or wrapping.header() == header


def test_recorded_keys_are_not_read():
    assert b64decode("YnVpbGRlci03") == wrapped_records()["plain"].key
