"""What a value is said to be that is not a valid trace."""

import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_schemas.dead_letter import FORMS
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode import decode_scorable
from support.wrapped import plain_trace, wrapped_records

TRACE = json.loads(plain_trace())
TEXT = plain_trace().decode()
EVENT = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}
INVALID = {name: member for name, member in TRACE.items() if name != "outcome"}
NAMED = {
    "confluent-json-prefix/own-schema": ("registry_json", "prefix (schema id 1)", '["frame"]'),
    "confluent-json-prefix/loose-draft7": ("registry_json", "prefix (schema id 2)", '["frame"]'),
    "apicurio-json-default": ("registry_json", "prefix (schema id 1)", '["frame"]'),
    "confluent-avro/json-in-a-string-field": (
        "registry_avro",
        "prefix (schema id 3), then Avro",
        "converter",
    ),
    "confluent-avro/primitive-string": ("registry_avro", "prefix (schema id 4), then Avro", "converter"),
    "cloudevents-structured": ("cloudevent", "trace is in /data", '["/data"]'),
    "cloudevents-java-structured/application_json": ("cloudevent", "trace is in /data", '["/data"]'),
    "cloudevents-structured-data-bytes": ("cloudevent", "data_base64", "datacontenttype application/json"),
    "cloudevents-structured-octets": ("cloudevent", "data_base64", "datacontenttype application/json"),
    "connect-json-schema-string": ("connect", "in the text in /payload", '["/payload", "text"]'),
    "connect-json-schema-struct": ("connect", "in /payload", '["/payload"]'),
    "connect-file-line/schemas-enable-true": ("connect", "in the text in /payload", '["/payload", "text"]'),
    "debezium-outbox/expand-true/schemas-true": ("connect", "in /payload", '["/payload"]'),
    "connect-file-line/schemas-enable-false": ("text", "trace is in the text", '["text"]'),
    "debezium-outbox/expand-false/schemas-false": ("text", "trace is in the text", '["text"]'),
    "json-in-a-json-string": ("text", "trace is in the text", '["text"]'),
    "debezium-envelope": ("debezium", "in the text in /after/payload", '["/after/payload", "text"]'),
    "outbox-envelope": ("envelope", "trace is in /payload", '["/payload"]'),
    "gzip": ("gzip", "compressed with gzip", "compression.type=gzip"),
    "zlib": ("zlib", "compressed with zlib", "compression.type=gzip"),
    "zstd": ("zstd", "compressed with zstd", "compression.type=zstd"),
    "lz4": ("lz4", "compressed with lz4", "compression.type=lz4"),
    "snappy-raw": ("snappy", "compressed with snappy", "compression.type=snappy"),
    "snappy-framed": ("snappy", "compressed with snappy", "compression.type=snappy"),
    "claim-check/url-text": ("address", "an address and not a trace", "Publish the trace itself"),
    "claim-check/json-string": ("address", "an address and not a trace", "Publish the trace itself"),
    "claim-check/json-object": ("address", "an address and not a trace", "Publish the trace itself"),
    "bom": ("byte_order_mark", "byte order mark", "RFC 8259 forbids"),
    "array-of-one": ("array", "an array", "one trace per record"),
    "jsonl-of-two": ("documents", "several JSON documents", "one trace per record"),
    "msgpack": ("binary", "MessagePack", "JSON in UTF-8"),
    "base64-text": ("base64", "base64", "the JSON itself"),
    "tombstone": (None, "no value", ""),
}
SCORED = {
    *("plain", "cloudevents-binary", "cloudevents-binary-data-bytes", "cloudevents-binary-data-text"),
    *("confluent-json-header", "apicurio-json-headers"),
    *("debezium-outbox-expanded", "debezium-outbox/expand-true/schemas-false"),
}


def refused(value) -> InvalidRecordError:
    if isinstance(value, dict | list):
        value = json.dumps(value)
    with pytest.raises(InvalidRecordError) as caught:
        decode_scorable(value.encode() if isinstance(value, str) else value, 2**20)
    return caught.value


def test_each_recorded_form_is_scored_or_named():
    assert SCORED | NAMED.keys() == wrapped_records().keys()


@pytest.mark.parametrize("form", sorted(SCORED))
def test_a_bare_trace_is_scored_whatever_its_headers(form):
    assert decode_scorable(wrapped_records()[form].value, 2**20).scorable.id == TRACE["id"]


@pytest.mark.parametrize("form", NAMED)
def test_a_refused_value_is_named_with_its_remedy(form):
    expected, words, remedy = NAMED[form]
    error = refused(wrapped_records()[form].value)

    assert error.form == expected
    assert words in str(error)
    assert remedy in str(error).partition(words)[2]


@pytest.mark.parametrize(
    ("value", "form", "words"),
    [
        (
            {"event": {"trace": TRACE}},
            "envelope",
            'trace is in /event/trace. Set records.unwrap = ["/event/trace"]',
        ),
        ({"detail": {"t": TEXT}}, "envelope", "trace is in the text in /detail/t"),
        (
            {"data": TRACE, "payload": TRACE},
            "envelope",
            "in /data and in /payload, and none of them is scored",
        ),
        (
            {**EVENT, "data": INVALID},
            "cloudevent",
            "the trace in /data is not valid: outcome: Field required",
        ),
        ({**EVENT, "data": {}}, "cloudevent", "Its data should be the trace"),
        (
            {"schema": {}, "payload": {"after": {"payload": TEXT}}},
            "connect",
            "text in /after/payload in /payload",
        ),
        (json.dumps(json.dumps(json.dumps(TEXT))), "text", "trace is in the text in the text in the text"),
        (
            b"\0\0\0\0\7" + json.dumps({**EVENT, "data": TRACE}).encode(),
            "registry_json",
            '["frame", "/data"]',
        ),
        (b"\0\0\0\0\0\0\0\1\2" + TEXT.encode(), "registry_json", "(schema id 258)"),
        (b"\0\0\0\0\1\0\n\x85\5" + TEXT.encode(), "registry_protobuf", "then Protobuf"),
        (b"\0\0\0\0\1\2\0\n\x85\5" + TEXT.encode(), "registry_protobuf", "then Protobuf"),
        (TEXT.encode("utf-16"), "utf_16", "UTF-16"),
        (TEXT.encode("utf-16-be"), "utf_16", "UTF-16"),
        (TEXT.encode("utf-32-le"), "utf_16", "UTF-16"),
        (b"\x82SNAPPY\0\0\0\0\1", "snappy", "snappy"),
        (bytes(40), "binary", "binary"),
        ({"uri": "gs://bucket/trace"}, "address", "address"),
    ],
)
def test_other_forms_are_named(value, form, words):
    error = refused(value)

    assert error.form == form
    assert words in str(error)


@pytest.mark.parametrize(
    ("value", "form", "words"),
    [
        (INVALID, "trace", "outcome: Field required"),
        ({**INVALID, "data": TRACE}, "trace", "outcome: Field required"),
        ({"@type": ["Run", "ReasoningTrace"], "data": TRACE}, "trace", "@type: "),
        ({"@type": "ReasoningTrace", "payload": TEXT}, "trace", "@context: Field required"),
        ('{"@type": "ReasoningTrace", "@type": "Event", "data": ' + TEXT + "}", "trace", "@context: "),
        ({"objective": "Fix the build"}, "json", "@context: Field required"),
        ('{"data": {}, "data": ' + TEXT + "}", "json", "@context: Field required"),
        ("5", "json", "Expected `object`, got `int`"),
        (TEXT[:300], "malformed", "truncated"),
        (TEXT.replace("}", "},", 1), "malformed", "malformed"),
        ("no trace", "malformed", "malformed"),
        (f'{{"data": {"[" * 300 + "]" * 300}}}', "malformed", "201 levels"),
    ],
)  # fmt: skip
def test_a_document_of_a_trace_and_other_json_keep_their_problem(value, form, words):
    error = refused(value)

    assert error.form == form
    assert str(error).startswith(words) or words in str(error)
    assert "the value is" not in str(error)


def test_a_large_trace_in_an_envelope_is_named_by_its_beginning_unless_it_may_be_scored():
    large = {**TRACE, "free": "x" * 2**20}
    for trace, unwrap, words in (
        (large, (), "a trace too large to be checked here is in /data. Set"),
        ({**large, "outcome": {}}, (), "a trace too large to be checked here is in /data. Set"),
        ({**large, "outcome": {}}, ["/data"], "the trace in /data is not valid: outcome"),
        ({**TRACE, "outcome": {}}, (), "the trace in /data is not valid: outcome"),
    ):
        value = json.dumps({**EVENT, "data": trace}).encode()
        with pytest.raises(InvalidRecordError) as caught:
            decode_scorable(value, 2**22, unwrap)
        assert words in str(caught.value)


LARGE = {**TRACE, "free": "x" * 2**20}
OTHER = {"@context": "https://schema.org", "free": LARGE["free"], "see": TRACE["@context"]}


@pytest.mark.parametrize(
    ("inner", "beside", "unwrap", "words"),
    [
        (LARGE, {}, (), "a trace too large to be checked here is in the text in /payload. Set"),
        (LARGE, {}, ["/payload"], 'is in the text in /payload. Set records.unwrap = ["/payload", "text"]'),
        (
            {**LARGE, "outcome": {}},
            {},
            ["/payload", "text"],
            "the trace in the text in /payload is not valid: outcome",
        ),
        (
            LARGE,
            {"data": TRACE},
            ["/data"],
            "valid traces are in /data and in the text in /payload, and none",
        ),
        (
            LARGE,
            {"data": TRACE},
            ["/payload", "text"],
            "valid traces are in the text in /payload and in /data, and",
        ),
        (OTHER, {}, (), "Field required"),
    ],
)
def test_the_beginning_of_a_large_text_tells_that_it_is_a_trace_unless_one_may_be_scored(
    inner, beside, unwrap, words
):
    """Unescaping it costs more than all else that a refusal takes."""
    for text in (json.dumps(inner), json.dumps(inner, indent=1).replace("https:/", "https:\\/")):
        value = json.dumps(beside | {"payload": text})
        with pytest.raises(InvalidRecordError) as caught:
            decode_scorable(value.encode(), 2**23, unwrap)
        assert words in str(caught.value)


def test_a_large_text_is_read_if_it_may_be_scored():
    value = json.dumps({"payload": json.dumps(LARGE)}).encode()

    assert decode_scorable(value, 2**22, ["/payload", "text"]).steps == ("/payload", "text")


@given(st.text(st.sampled_from('{}[]",:\\ \nu0aRe/~@'), max_size=60) | st.text(max_size=40))
def test_any_text_has_a_form(text):
    """No value may raise another error, nor be said to hold a trace that it lacks."""
    error = refused(f'{{"data": {text}}}')

    assert error.form in FORMS
    assert "valid trace" not in str(error)


@given(
    st.binary(min_size=1, max_size=80), st.sampled_from([b"", b"\0", b"\0\0\0\0\1", b"x\x9c", b"\x80", b'"'])
)
def test_any_bytes_have_a_form(content, prefix):
    error = refused(prefix + content)

    assert error.form in FORMS


@given(st.integers(1, 2**31 - 1), st.binary(min_size=4, max_size=40))
def test_a_brace_behind_a_length_is_no_json_behind_a_prefix(schema_id, more):
    """Protobuf has a tag and a length there if the text has 128 bytes and more; Avro from 1 MiB on."""
    body = b"\0\n" + bytes([0x80 | len(more), 1]) + b"{" + more
    error = refused(b"\0" + struct.pack(">I", schema_id) + body)

    assert error.form in ("registry_avro", "registry_protobuf")
    assert f"(schema id {schema_id})" in str(error)


def test_zlib_is_told_from_a_text_that_begins_alike():
    assert refused(zlib.compress(TEXT.encode(), 0)).form == "zlib"
    assert refused("x^ is no trace").form == "malformed"


@pytest.mark.parametrize("name", ["a b", "a,b", 'a"b', "", "é" * 5])
def test_a_member_that_the_setting_cannot_name_is_not_proposed(name):
    error = refused({name: TRACE})

    assert ("records.unwrap" in str(error)) == (name == "é" * 5)
