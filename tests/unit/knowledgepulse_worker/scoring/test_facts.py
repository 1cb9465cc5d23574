"""Facts are plain numbers of a trace alone, the same wherever they are computed, and bounded."""

import math
import time
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.policy import FACT_NAMES
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.records.decode_content import counts_of
from knowledgepulse_worker.scoring import FACTS, count_trace
from knowledgepulse_worker.scoring import count_steps as count_given_steps
from support.traces import TRACES

TEXT = st.sampled_from(
    ["", "a", "Error: no such file", "ok", "null", "{}", "I cannot do that.", "Shall I?", "İ"]
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["thought", "tool_call", "observation", "error_recovery"]), TEXT, TEXT, TEXT, TEXT
    ),
    min_size=1,
    max_size=12,
)


def count_steps(steps, result):
    """Count steps given as type, tool, content, JSON of the input, and output; an absent text is empty."""
    return count_given_steps(
        [
            SimpleNamespace(
                type=kind,
                tool=SimpleNamespace(name=tool) if tool else None,
                content=content or None,
                input=msgspec.Raw(own_input.encode()) if own_input else None,
                output_summary=output or None,
            )
            for kind, tool, content, own_input, output in steps
        ],
        result,
    )


def facts_of(steps, result):
    counts = count_steps(steps, result)
    return {name: fact.of(counts) for name, fact in FACTS.items()}


def test_the_facts_that_policies_may_name_are_those_that_are_computed():
    assert tuple(FACTS) == FACT_NAMES


@given(steps=STEPS, result=TEXT)
def test_every_fact_is_in_its_range_and_told_in_a_sentence(steps, result):
    counts = count_steps(steps, result)

    for name, fact in FACTS.items():
        value = fact.of(counts)
        assert 0 <= value <= (fact.highest or 100), name
        assert math.isfinite(value)
        assert fact.tell(counts).isprintable()


@given(steps=STEPS, result=TEXT)
def test_counts_are_consistent(steps, result):
    counts = count_steps(steps, result)

    assert counts.steps == len(steps)
    assert counts.repeated < max(1, counts.calls)
    assert counts.most_used <= counts.calls
    assert counts.failed <= counts.observations
    assert counts.thought_characters + counts.observation_characters <= counts.characters


def test_each_fact_counts_what_its_name_says():
    steps = [
        ("thought", "", "hmm", "", ""),
        ("tool_call", "grep", "", '{"a": 1}', ""),
        ("observation", "grep", "Error: NO SUCH file", "", ""),
        ("tool_call", "grep", "", '{"a": 1}', ""),
        ("tool_call", "cat", "", "null", "Traceback"),
        ("error_recovery", "", "again", "", ""),
        ("observation", "", "", "", "fine"),
    ]

    found = facts_of(steps, "I'm unable to do it. Shall I try?")

    assert found == {
        "steps": math.log1p(7),
        "characters": math.log1p(3 + 8 + 19 + 8 + 9 + 5 + 4),
        "calls": math.log1p(3),
        "tools": math.log1p(2),
        "thought_length": math.log1p(3),
        "observation_length": math.log1p((19 + 9 + 5 + 4) / 4),
        "result_length": math.log1p(33),
        "one_tool_share": 2 / 3,
        "repeated_share": 1 / 3,
        "failed_share": 1 / 2,
        "recovered_share": 1 / 7,
        "last_failed": 0,
        "ends_observed": 1,
        "declines": 1,
        "asks": 1,
    }
    counts = count_steps(steps, "")
    assert FACTS["repeated_share"].tell(counts) == "1 of 3 calls repeat an earlier one"


def test_facts_of_none_and_of_one_are_told_as_a_person_would():
    told = {
        name: fact.tell(count_steps([("thought", "", "hmm", "", "")], "")) for name, fact in FACTS.items()
    }

    assert told["steps"] == "it has 1 step"
    assert told["tools"] == "it uses no tools"
    assert told["repeated_share"] == "no calls repeat an earlier one"


def test_a_decoded_trace_and_its_bytes_have_the_same_counts():
    """The stream counts the decoded trace, and tools the bytes of an output."""
    for line in TRACES.read_bytes().splitlines():
        trace = decode_trace(line, len(line))
        assert count_trace(trace) == counts_of(line)


@pytest.mark.parametrize(
    "steps",
    [
        [("observation", "", "x", "", "")] * 20_000,
        [("tool_call", str(number), "", str(number), "") for number in range(20_000)],
        [("observation", "", "İ" * 1_000_000, "", "")],
        [("thought", "", "erro" * 250_000, "", "")],
    ],
)
def test_a_hostile_trace_takes_time_in_proportion_to_its_size(steps):
    """The limit is a hundred times what it takes, so that only another order of growth exceeds it."""
    started = time.process_time()
    count_steps(steps, "cannot" * 200_000)
    assert time.process_time() - started < 5


def test_counts_of_version_1_keep_their_meaning():
    """Stored policies name facts of version 1; another meaning would change their scores."""
    steps = [
        ("thought", "", "ab", "", ""),
        ("tool_call", "x", "", "{}", "Denied"),
        ("tool_call", "x", "", "{}", ""),
    ]
    counts = (3, 1, 2, 1, 0, 12, 2, 6, 2, 1, 2, 1, 1, True, False, False, False, None, None)

    assert msgspec.structs.astuple(count_steps(steps, "no")) == counts
