"""What decoding costs: bounded by the size of a value, whatever is in it; long traces lose nothing by it."""

import json
from contextlib import suppress

import pytest

from knowledgepulse_worker.errors import InvalidRecordError
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.scoring import count_trace
from knowledgepulse_worker.scoring.text import input_json
from support.memory import traced

LIMIT = 1_048_576


def peak_of(work):
    """Return the most bytes that work allocates."""
    with traced() as memory:
        work()
    return memory.peak


def _filled(unit, size=200_000):
    return ",".join([unit] * (size // (len(unit) + 1)))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        *(("top", text) for text in ("[" * 100 + "]" * 100, "{}", "0", '""', '"\\ud800"')),
        *((place, "[]") for place in ("metadata", "step", "tool", "outcome", "input", "input_schema")),
    ],
)
def test_what_the_schema_does_not_name_takes_little_memory(place, text, document):
    """Each of these took 20 to 90 times its size before, and seconds of the event loop."""
    trace = document()
    trace["steps"][0] |= {"tool": {"name": "grep"}, "input": {}}
    parents = {
        "top": trace,
        "metadata": trace["metadata"],
        "step": trace["steps"][0],
        "tool": trace["steps"][0]["tool"],
        "outcome": trace["outcome"],
        "input": trace["steps"][0]["input"],
        "input_schema": trace["task"],
    }
    parents[place]["input_schema" if place == "input_schema" else "unknown"] = "@"
    value = json.dumps(trace).replace('"@"', f"[{_filled(text)}]").encode()

    decode_trace(value, LIMIT)

    assert peak_of(lambda: decode_trace(value, LIMIT)) < 20 * len(value)


@pytest.mark.parametrize(
    ("place", "item"),
    [
        ("steps", '{"step_id":0,"type":"thought"}'),
        ("steps", '{"step_id":300,"type":"tool_call","tool":{"name":""},"input":{}}'),
        ("steps", "{}"),
        ("entities", '{"name":"","type":""}'),
        ("entities", "{}"),
        ("relationships", '{"fact":"","valid_from":""}'),
        ("validated_by", '"ab"'),
    ],
)
def test_tiny_items_take_little_memory(place, item, document):
    """As models they take up to 36 times their size."""
    trace = document(knowledge_graph_delta={})
    parents = {"steps": trace, "validated_by": trace["metadata"]}
    parents.get(place, trace["knowledge_graph_delta"])[place] = "@"
    value = json.dumps(trace).replace('"@"', f"[{_filled(item)}]").encode()

    def work():
        with suppress(InvalidRecordError):
            decode_trace(value, LIMIT)

    assert peak_of(work) < 20 * len(value)


@pytest.mark.parametrize("place", ["steps", "entities", "relationships"])
@pytest.mark.parametrize("index", [0, 255, 256, 999])
def test_an_invalid_item_is_named_wherever_it_is(place, index, document):
    items = {
        "steps": {"step_id": 0, "type": "thought"},
        "entities": {"name": "", "type": ""},
        "relationships": {"fact": "", "valid_from": ""},
    }
    array = [dict(items[place]) for _ in range(1_000)]
    array[index]["type" if "type" in array[index] else "fact"] = 1
    path = place if place == "steps" else f"knowledge_graph_delta.{place}"
    trace = document(**({place: array} if place == "steps" else {"knowledge_graph_delta": {place: array}}))

    with pytest.raises(InvalidRecordError, match=rf"^{path}\.{index}\.(type|fact): Input should be"):
        decode_trace(json.dumps(trace).encode(), LIMIT)


@pytest.mark.parametrize("earlier", ["null", "0", '"x"', "{}", '[{"input": 1}]'])
def test_inputs_are_those_of_the_last_duplicate(earlier, document):
    steps = [{"step_id": 0, "type": "tool_call", "input": {"command": "ls"}}]
    value = (f'{{"steps": {earlier}, ' + json.dumps(document(steps=steps))[1:]).encode()

    (step,) = decode_trace(value, LIMIT).steps

    assert input_json(step.input) == '{"command": "ls"}'


def test_inputs_that_are_only_counted_take_little_memory(document):
    steps = [{"step_id": 0, "type": "tool_call", "input": {}}] * 20_000
    value = json.dumps(document(steps=steps)).encode()
    trace = decode_trace(value, 2 * LIMIT)

    def work():
        assert count_trace(trace).repeated == len(steps) - 1

    assert peak_of(work) < 5 * len(value)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda trace: {"specversion": "1.0", "source": "/a", "data": trace},
        lambda trace: {"schema": {}, "payload": json.dumps(trace)},
        lambda trace: {"before": None, "after": {"payload": json.dumps(trace)}},
        json.dumps,
    ],
)
@pytest.mark.parametrize(
    ("count", "named"),
    [(8_000, "a valid trace is in"), (18_000, "a trace too large to be checked here is in")],
)
def test_a_large_envelope_is_named_in_little_more_memory_than_its_size(wrap, document, count, named):
    steps = [{"step_id": 0, "type": "thought", "content": 'say "hello"'}] * count
    value = json.dumps(wrap(document(steps=steps))).encode()

    def work():
        with pytest.raises(InvalidRecordError, match=named):
            decode_trace(value, 2 * LIMIT)

    work()
    assert peak_of(work) < 2.1 * len(value)


@pytest.mark.parametrize("wrong", ["0", '"x"', "true", "[1]", "[]"])
def test_an_input_that_is_no_object_is_named(wrong, document):
    value = json.dumps(document(steps=[{"step_id": 0, "type": "tool_call", "input": "@"}])).encode()

    with pytest.raises(InvalidRecordError, match=r"^steps\.0\.input: Input should be an object$"):
        decode_trace(value.replace(b'"@"', wrong.encode()), LIMIT)


def test_a_megabyte_of_errors_is_not_read_to_its_end(document):
    value = json.dumps(document(steps=[0] * 300_000)).encode()

    def work():
        with pytest.raises(InvalidRecordError, match=r"steps\.0: Expected `object`, got `int`"):
            decode_trace(value, LIMIT)

    assert peak_of(work) < 5 * len(value)
