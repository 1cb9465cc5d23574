"""Decoding traces, rejecting everything else, and setting a score without changing anything else."""

import json
import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode import decode_trace, with_quality_score
from knowledgepulse_worker.scoring import embedding_text
from knowledgepulse_worker.scoring.text import MAX_CHARACTERS, input_json
from support.schema_cases import REFUSED, changed, full_document

LIMIT = 1_048_576
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@pytest.fixture
def with_free_field(document):
    """A function that puts a JSON text into a member unknown to the schema."""

    def put(text: str | bytes) -> bytes:
        before, after = json.dumps(document(free=0)).encode().split(b'"free": 0')
        return before + b'"free": ' + (text.encode() if isinstance(text, str) else text) + after

    return put


def rejected(value, max_bytes=LIMIT) -> str:
    with pytest.raises(InvalidRecordError) as caught:
        decode_trace(value, max_bytes)
    return caught.value.reason


# --- dead letters


@pytest.mark.parametrize("value", [None, b""])
def test_a_record_without_a_value_is_empty(value):
    assert rejected(value) == "empty"


def test_a_value_at_the_limit_is_accepted_and_one_byte_more_is_too_large(document):
    value = json.dumps(document()).encode()

    assert decode_trace(value, len(value)).id == document()["id"]
    assert rejected(value, len(value) - 1) == "too_large"


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "Infinity", "-Infinity", "01", "1.", ".5", "+1", "1e", "tru", "'x'", "[1,]", '{"a": 1,}'),
        *('"\x01"', '"\\x41"', '"\\u12"', "\ufeff1", '{"a" 1}', "// comment\n1"),
        *(b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xc0\x80"'),
    ],
)
def test_invalid_json_or_utf_8_anywhere_in_the_value_is_rejected(text, with_free_field):
    assert rejected(with_free_field(text)) == "not_json"


@pytest.mark.parametrize("damage", ["\N{ZERO WIDTH NO-BREAK SPACE}%s", "%s}", "%s x", "%s%s", "{%s"])
def test_anything_but_one_object_and_whitespace_is_rejected(damage, document):
    assert rejected(damage.replace("%s", json.dumps(document())).encode()) == "not_json"


def test_a_truncated_value_is_not_json_wherever_it_was_cut(document):
    value = json.dumps(document()).encode()

    assert {rejected(value[:end]) for end in range(1, len(value))} == {"not_json"}


@pytest.mark.parametrize("nested", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_a_value_nested_100_000_levels_deep_is_rejected(nested, with_free_field):
    assert rejected(with_free_field(nested)) == "not_json"
    assert rejected(nested.encode()) == "not_json"
    assert rejected(nested[:100_000].encode()) == "not_json"


@pytest.mark.parametrize(
    "value",
    [
        *(b"[garbage]", b"[1,2", b"[NaN]", b'["\xff"]', b'"\xff"', b"1 2", b"[1]x", b"[01]"),
        *(b'["\\x41"]', b"[\x00\x01\xfe"),
    ],
)
def test_a_value_that_only_starts_as_json_is_not_json(value):
    assert rejected(value) == "not_json"


@pytest.mark.parametrize(
    "value", [b"null", b"[]", b'"text"', b"1", b"true", b"{}", b'["\\ud800"]', b'[{"a": 1}]']
)
def test_json_other_than_a_trace_object_is_an_invalid_trace(value):
    assert rejected(value) == "invalid_trace"


@pytest.mark.parametrize(("path", "value"), REFUSED)
def test_what_the_schema_refuses_is_an_invalid_trace_whose_member_is_named(path, value):
    with pytest.raises(InvalidRecordError, match=re.escape(path.replace("/", "."))) as caught:
        decode_trace(json.dumps(changed(full_document(), path, value)).encode(), LIMIT)
    assert caught.value.reason == "invalid_trace"


@pytest.mark.parametrize(("member", "python_name"), [("@type", "type"), ("@context", "context")])
def test_a_member_under_its_python_name_is_not_accepted(member, python_name, document):
    """Consumers read ``@type``; a trace with only ``type`` would reach them without it."""
    trace = document()
    trace[python_name] = trace.pop(member)

    assert rejected(json.dumps(trace).encode()) == "invalid_trace"


def test_a_message_lists_the_first_errors_and_quotes_nothing_from_the_trace(document):
    secret = "the patient's name"
    bad = [{"step_id": secret, "type": secret, "content": {secret: 1}}] * 50
    trace = document(steps=bad, metadata={"success": secret}, outcome=secret)

    with pytest.raises(InvalidRecordError) as caught:
        decode_trace(json.dumps(trace).encode(), LIMIT)

    assert "metadata.success" in str(caught.value)
    assert "and 4 more" in str(caught.value)
    assert secret not in str(caught.value)
    assert len(str(caught.value)) < 1000


# --- what is accepted


# --- properties


class Number(str):
    """A number as written in the JSON text."""

    __slots__ = ()


class Writer:
    """Writes JSON in any form that RFC 8259 allows, and notes the position of the score.

    Members come in any order. An object may repeat a member, and the last one counts; only the score and the
    metadata may not be repeated.
    """

    def __init__(self, random):
        self.random = random
        self.text = ""
        self.score = None  # its start and end
        self.deceives = False  # whether a consumer that keeps the first of two members reads another score

    def write(self, value, path=()):
        self._space()
        start = len(self.text)
        match value:
            case Number():
                self.text += value
            case str():
                self.text += '"' + "".join(map(self._character, value)) + '"'
            case dict():
                self._object(value, path)
            case list():
                self._listed("[]", [partial(self.write, item, (*path, 0)) for item in value])
            case _:
                self.text += {None: "null", True: "true", False: "false"}[value]
        if path == ("metadata", "quality_score"):
            self.score = start, len(self.text)
        self._space()

    def _object(self, value, path):
        members = list(value.items())
        self.random.shuffle(members)
        writers = [partial(self._member, name, item, (*path, name)) for name, item in members]
        if members and self.random.random() < 0.3:
            duplicated = self.random.choice(members)[0]
            self.deceives |= (*path, duplicated) in (("metadata",), ("metadata", "quality_score"))
            decoy = self.random.choice([None, "x", Number("7"), {}, {"quality_score": Number("0.125")}])
            writers.insert(0, partial(self._member, duplicated, decoy, ("decoy",)))
        self._listed("{}", writers)

    def _member(self, name, value, path):
        self.write(name)
        self.text += ":"
        self.write(value, path)

    def _listed(self, brackets, writers):
        self.text += brackets[0]
        for number, write in enumerate(writers):
            self.text += "," if number else ""
            write()
        if not writers:
            self._space()
        self.text += brackets[1]

    def _space(self):
        if self.random.random() < 0.2:
            self.text += "".join(self.random.choices(" \t\r\n", k=2))

    def _character(self, character):
        short = json.dumps(character)[1:-1]
        if self.random.random() < 0.8 and character >= " " and not LONE_SURROGATE.match(character):
            return short if character in '"\\' else character
        if len(short) == 2 and self.random.random() < 0.5:
            return short
        units = character.encode("utf-16-be", "surrogatepass").hex()
        escaped = "".join("\\u" + units[place : place + 4] for place in range(0, len(units), 4))
        return escaped if self.random.random() < 0.5 else escaped.upper().replace("U", "u")


texts = st.text(st.characters(), max_size=12)
numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True).map(
    Number
)
unit_numbers = st.sampled_from(
    ["0", "-0", "1", "1.0", "0.50", "5e-1", "0.1E0", "1.00e+0", "0.3000000000000000444"]
).map(Number)
free = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
unknown = st.dictionaries(texts.map(lambda name: f"x-{name}"), free, max_size=2)


def members(required, **optional):
    """Objects with the required members, any of the optional ones, and unknown ones."""
    known = st.fixed_dictionaries(required, optional=optional)
    return st.tuples(known, unknown).map(lambda both: both[0] | both[1])


tools = members({"name": texts}, mcp_server=texts)
steps = members(
    {
        "step_id": st.sampled_from(["0", "7", "123456789012345678901234567890"]).map(Number),
        "type": st.sampled_from(["thought", "tool_call", "observation", "error_recovery"]),
    },
    content=st.none() | texts,
    tool=st.none() | tools,
    input=st.none() | unknown,
    latency_ms=unit_numbers,
)
documents = members(
    {
        "@context": st.just("https://openknowledgepulse.org/schema/v1"),
        "@type": st.just("ReasoningTrace"),
        "id": texts.map(lambda text: f"kp:trace:{text}"),
        "metadata": members(
            {
                "created_at": st.sampled_from(["2026-01-31T12:00:00Z", "2026-01-31 12:00:00,5+01:00"]),
                "task_domain": texts.filter(bool),
                "success": st.booleans(),
                "visibility": st.sampled_from(["private", "org", "network"]),
                "privacy_level": st.sampled_from(["aggregated", "federated", "private"]),
            },
            quality_score=st.none() | unit_numbers,
            agent_id=texts,
        ),
        "task": members({"objective": texts.filter(bool)}, input_schema=free),
        "steps": st.lists(steps, min_size=1, max_size=3),
        "outcome": members({"result_summary": texts, "confidence": unit_numbers}),
    },
    source_skill=texts,
)


@st.composite
def written_traces(draw):
    """A trace's bytes, the position of its score (None without one), and whether a duplicate deceives."""
    writer = Writer(draw(st.randoms(use_true_random=True)))
    writer.write(draw(documents))
    if writer.score is None:
        return writer.text.encode(), None, writer.deceives
    start, end = (len(writer.text[:place].encode()) for place in writer.score)
    return writer.text.encode(), (start, end), writer.deceives


scores = st.floats(0, 1) | st.sampled_from([0.1 + 0.2, 1 - 2**-53, 5e-324, 0.0, 1.0, 1e-7])


def exactly(text: bytes):
    """Parse as a last-wins parser does, with every number as written."""
    return json.loads(text, parse_int=Number, parse_float=Number)


@given(written_traces(), scores)
@settings(max_examples=100)
def test_a_score_changes_no_byte_but_the_score(written, score):
    value, position, deceives = written
    if deceives:
        assert rejected(value) == "invalid_trace"
        return
    read = decode_trace(value, LIMIT)

    scored = with_quality_score(value, score)

    if position is None:
        added = len(scored) - len(value)
        start = next(i for i in range(len(value)) if scored[i] != value[i])
        assert scored[start + added :] == value[start:]
    else:
        start, end = position
        assert scored[:start] == value[:start]
        assert scored.endswith(value[end:])
        assert float(scored[start : len(scored) - len(value) + end]) == score
    before, after = exactly(value), exactly(scored)
    inputs = [json.dumps(step["input"]) if "input" in step else "" for step in before["steps"]]
    assert [input_json(step.input)[:1] for step in read.steps] == [text[:1] for text in inputs]
    before["metadata"].pop("quality_score", None)
    assert float(after["metadata"].pop("quality_score")) == score
    assert after == before
    assert decode_trace(scored, LIMIT).metadata.quality_score == score
    assert read.task.objective == LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", before["task"]["objective"])
    assert read.outcome.confidence == float(before["outcome"]["confidence"])


@pytest.mark.parametrize("decoy", ["metadata", "quality_score", {"metadata": {"quality_score": 0.1}}])
@pytest.mark.parametrize("own", [{}, {"quality_score": 0.9}])
@pytest.mark.parametrize("escaped", ["metadata", "quality_score", None])
def test_only_the_trace_s_own_score_is_set_whatever_else_has_its_names(decoy, own, escaped, document):
    trace = {"first": decoy, **document()}
    trace["metadata"] = {"first": decoy, **trace["metadata"], **own}
    value = json.dumps(trace)
    if escaped:
        before, quoted, after = value.rpartition(f'"{escaped}": ')
        value = before + quoted.replace("a", "\\u0061") + after
        trace = json.loads(value)
    decode_trace(value.encode(), LIMIT)

    scored = json.loads(with_quality_score(value.encode(), 0.5))

    trace["metadata"]["quality_score"] = 0.5
    assert scored == trace


@pytest.mark.parametrize(
    "name", ["quality\\u005fscore", "\\u0071uality_score", 'a \\"quality_score', "quality_score "]
)
def test_a_score_under_an_escaped_name_is_the_only_one(name, document):
    """A second one was put beside it."""
    trace = document()
    trace["metadata"]["score"] = 0.9
    value = json.dumps(trace).replace('"score"', f'"{name}"')
    decode_trace(value.encode(), LIMIT)

    scored = with_quality_score(value.encode(), 0.5).decode()

    members = json.loads(scored, object_pairs_hook=lambda pairs: pairs)
    (metadata,) = [content for name, content in members if name == "metadata"]
    assert [score for name, score in metadata if name == "quality_score"] == [0.5]


edits = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True), st.sampled_from(["put", "insert", "delete"]), st.binary(max_size=2)
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="session")
def real_trace(real_traces):
    """A real trace by number, cut to a few short steps so that damage hits more than prose."""

    def cut(number):
        trace = json.loads(real_traces[number])
        trace["steps"] = [step | {"content": step.get("content", "")[:30]} for step in trace["steps"][3:6]]
        return json.dumps(trace, ensure_ascii=False).encode()

    return cut


@given(number=st.integers(0, 153), edits=edits)
@settings(max_examples=500)
def test_a_damaged_trace_is_rejected_or_scored_but_never_stops_the_worker(real_trace, number, edits):
    """Any error but InvalidRecordError would end process after process at this record."""
    value = bytearray(real_trace(number))
    for where, edit, data in edits:
        start = int(where * len(value))
        end = start + {"put": len(data), "insert": 0, "delete": 1}[edit]
        value[start:end] = b"" if edit == "delete" else data
    value = bytes(value)

    try:
        trace = decode_trace(value, LIMIT)
    except InvalidRecordError:
        return
    assert len(embedding_text(trace, "agent")) <= MAX_CHARACTERS
    before, after = exactly(value), exactly(with_quality_score(value, 0.5))
    before["metadata"]["quality_score"] = "0.5"
    assert after == before


def test_a_record_has_the_text_of_the_whole_trace(real_traces, document):
    """Inputs stay JSON in a decoded trace, and yet are part of the text `agent`."""
    own_input = {"command": "größer\n\U0001f600", "options": [{"depth": 2, "all": True, "none": None}]}
    steps = [
        {"step_id": 0, "type": "tool_call", "tool": {"name": "shell"}, "input": own_input},
        {"step_id": 1, "type": "tool_call", "input": None},
        {"step_id": 2, "type": "tool_call"},
    ]
    values = [*real_traces, json.dumps(document(steps=steps)).encode()]

    texts = [embedding_text(decode_trace(value, LIMIT), "agent") for value in values]

    assert texts == [embedding_text(ReasoningTrace.model_validate_json(value), "agent") for value in values]
    assert texts[-1].endswith("shell command größer\n\U0001f600 options depth 2 all true none")


@pytest.mark.parametrize(("levels", "reason"), [(200, None), (201, "not_json")])
def test_a_trace_nests_200_levels_deep_whatever_its_strings_say(levels, reason, with_free_field):
    value = with_free_field("[" * levels + json.dumps("[" * 500) + "]" * levels)

    if reason is None:
        decode_trace(value, LIMIT)
    else:
        assert rejected(value) == reason
