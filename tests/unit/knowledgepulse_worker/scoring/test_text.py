"""The text `sdk` equals the reference's, to the space; `agent` is what the agent did, in bounded work.

`parts` is that too, beside both ends of what it was asked.
"""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.scoring import PART_SEPARATOR, embedding_text
from knowledgepulse_worker.scoring.text import (
    MAX_CHARACTERS,
    MAX_ID_LENGTH,
    MAX_STEPS_CHARACTERS,
    OBJECTIVE_WORDS,
    bounded_id,
)
from support.traces import made


def trace_of(*steps, objective="Fix it"):
    return made(objective, steps, result_summary="not part of it")


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (["look", "act"], "Fix it look act"),
        ([" look "], "Fix it  look "),
        (["look", None, "act"], "Fix it look  act"),
        (["look", "", "act"], "Fix it look  act"),
        ([None], "Fix it "),
        ([None, None], "Fix it  "),
    ],
)
def test_the_objective_and_the_contents_are_joined_with_single_spaces(contents, expected):
    trace = trace_of(
        *(
            {"type": "tool_call", "content": content, "tool": {"name": "x"}, "output_summary": "y"}
            for content in contents
        )
    )

    assert embedding_text(trace) == expected


# --- agent


def agent_text(*steps, **others):
    return embedding_text(trace_of(*steps, **others), "agent")


def test_thoughts_and_tool_calls_are_read_with_their_inputs_but_no_observations():
    text = agent_text(
        {"type": "thought", "content": "The lock file is stale."},
        {"type": "tool_call", "tool": {"name": "sh"}, "input": {"command": 'grep "a\\b"', "timeout": 5}},
        {"type": "observation", "content": "no match", "tool": {"name": "sh"}, "input": {"seen": "it"}},
        {"type": "error_recovery", "content": "Search.", "tool": {"name": "find"}, "output_summary": "y"},
        {"type": "tool_call"},
    )

    assert text == 'Fix it The lock file is stale. sh command grep "a\\b" timeout 5 Search. find'


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (" ".join(map(str, range(100))), " ".join(map(str, range(48)))),
        ("修" * 100, "修" * 48),
        ("x" * 2000, "x" * 48 * 20),
        ("Fix\n the  build", "Fix\n the  build"),
        (" \n", ""),
    ],
    ids=["words", "a script without spaces", "one long word", "short", "blank"],
)
def test_only_the_beginning_of_the_objective_is_read(objective, expected):
    text = agent_text({"type": "thought", "content": "think"}, objective=objective)

    assert text.split(" think")[0] == (expected or "think")


WORDS = st.lists(st.sampled_from(["a" * 19, "b", "修", " ", "\n", "\u3000", "-"]), min_size=1, max_size=120)


@given(WORDS.map("".join))
def test_the_beginning_ends_with_the_last_of_its_words(objective):
    ends = [word.end() for word in re.finditer(r"修|[^\s修]{1,20}", objective)][:OBJECTIVE_WORDS]

    first, *_ = embedding_text(trace_of({"type": "thought"}, objective=objective), "parts").split(
        PART_SEPARATOR
    )

    assert first == objective[: ends[-1] if ends else 0]


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
names = st.text(max_size=4)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)
inputs = st.dictionaries(names, values, max_size=4)


def leaves_of(value):
    """Yield the names and values of an input in order, without its structure."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from leaves_of(member)
    elif isinstance(value, list):
        for member in value:
            yield from leaves_of(member)
    elif value is not None:
        yield value if isinstance(value, str) else json.dumps(value)


@given(inputs)
def test_an_input_is_its_names_and_values_however_they_are_escaped(own_input):
    trace = trace_of({"type": "tool_call", "tool": {"name": "shell"}, "input": own_input})
    expected = " ".join(["Fix it", "shell", *filter(None, leaves_of(own_input))])

    assert embedding_text(trace, "agent") == expected
    for indent in (None, 2):
        trace.steps[0].input = msgspec.Raw(json.dumps(own_input, indent=indent).encode())
        assert embedding_text(trace, "agent") == expected


steps = st.fixed_dictionaries(
    {"type": st.sampled_from(["thought", "tool_call", "observation", "error_recovery"])},
    optional={
        "content": st.none() | st.text() | st.integers(1, 20_000).map("c".__mul__),
        "tool": st.fixed_dictionaries({"name": st.text()}),
        "input": inputs | st.integers(1, 20_000).map(lambda size: {"long": "\\\n" * size}),
    },
)


@given(st.lists(steps, min_size=1, max_size=8), st.text(min_size=1) | st.just("o" * 20_000))
def test_the_text_is_bounded_and_the_same_every_time(steps, objective):
    text = agent_text(*steps, objective=objective)

    assert len(text) <= MAX_CHARACTERS
    assert text == agent_text(*steps, objective=objective)


@pytest.mark.parametrize(
    "step",
    [
        {"type": "thought", "content": "think " * 100},
        {"type": "thought"},
        {"type": "observation", "content": "see"},
        {"type": "tool_call", "tool": {"name": "shell"}, "input": {}},
    ],
    ids=["long", "empty", "observation", "empty input"],
)
def test_a_longer_trace_costs_no_more(step):
    """Steps beyond the text's end are not even looked at."""
    trace, asked = trace_of(*[step] * 20_000), 0

    class Steps(list):
        def __iter__(self):
            nonlocal asked
            for visited in super().__iter__():
                asked += 1
                yield visited

    trace.steps = Steps(trace.steps)
    embedding_text(trace, "agent")

    assert asked <= MAX_CHARACTERS


@pytest.mark.parametrize("unit", ["[", "{}", ", ", "null,", '"",', "[0"])
def test_of_a_megabyte_of_input_only_the_beginning_is_read(unit):
    trace = trace_of({"type": "tool_call", "tool": {"name": "shell"}})
    trace.steps[0].input = msgspec.Raw(b'{"command": [' + unit.encode() * MAX_CHARACTERS + b'"later"')

    text = embedding_text(trace, "agent")

    assert text.startswith("Fix it shell command")
    assert "later" not in text


# --- parts


def parts_of(*steps, **others):
    return embedding_text(trace_of(*steps, **others), "parts").split(PART_SEPARATOR)


THOUGHT = {"type": "thought", "content": "think"}
FIRST, LAST = (" ".join(f"{name}{number}" for number in range(OBJECTIVE_WORDS)) for name in ("first", "last"))


@pytest.mark.parametrize(
    ("objective", "first", "last"),
    [
        ("Fix it", "Fix it", ""),
        (FIRST, FIRST, ""),
        (f"{FIRST} {LAST}", FIRST, LAST),
        (f"{FIRST}\n{'prompt ' * 20_000}\n{LAST}", FIRST, LAST),
        (f"{FIRST} few more", FIRST, "few more"),
        ("修" * 10_000, "修" * OBJECTIVE_WORDS, "修" * OBJECTIVE_WORDS),
    ],
    ids=["short", "all", "both ends", "a long prompt between", "a short rest", "no spaces"],
)
def test_both_ends_of_the_objective_are_parts_of_their_own(objective, first, last):
    assert parts_of(THOUGHT, objective=objective) == [first, last, "think"]


def test_the_steps_are_those_of_agent_and_what_the_user_said_later():
    did = (
        {"type": "thought", "content": "The lock file is stale."},
        {"type": "tool_call", "tool": {"name": "sh"}, "input": {"command": 'grep "a\\b"', "timeout": 5}},
        {"type": "observation", "content": "no match", "tool": {"name": "sh"}},
    )
    said = {"type": "observation", "content": "My user id is mia_li_3668."}

    assert f"Fix it {parts_of(*did)[2]}" == agent_text(*did) == agent_text(*did, said)
    assert f"Fix it {parts_of(*did, said)[2]}" == f"{agent_text(*did)} My user id is mia_li_3668."


@given(st.text(min_size=1, max_size=60), st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_there_are_three_parts_whatever_a_trace_says(objective, contents):
    steps = [{"type": "thought", "content": content} for content in contents]

    assert len(parts_of(*steps, objective=objective)) == 3


def test_the_length_of_each_part_is_bounded():
    first, last, steps = parts_of(*[{"type": "thought", "content": "x" * 1000}] * 100, objective="x" * 10**6)

    assert max(len(first), len(last)) <= OBJECTIVE_WORDS * 21
    assert MAX_STEPS_CHARACTERS - 1000 < len(steps) <= MAX_STEPS_CHARACTERS


def test_a_long_id_is_its_beginning_and_a_hash_of_the_whole():
    first, other = bounded_id("x" * (MAX_ID_LENGTH + 1)), bounded_id("x" * (MAX_ID_LENGTH + 2))

    assert len(first) == len(other) == MAX_ID_LENGTH
    assert first != other
    assert bounded_id("x" * MAX_ID_LENGTH) == "x" * MAX_ID_LENGTH
