"""The words of a trace are the same wherever they are read, and keep their buckets."""

import json

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.policy import BUCKETS, Reading
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.records.decode_content import counts_of
from knowledgepulse_worker.scoring import count_trace, embedding_text, words_text
from knowledgepulse_worker.scoring.words import (
    buckets_of,
    distinct_words,
    hashes_of,
    parts_of,
    word_buckets,
    words_of,
)
from support.traces import made


def test_words_keep_their_buckets():
    """Stored policies have a weight for each bucket; another hash would change their scores."""
    words = ["stale", "lock", "größer", "修", "修理", "_", "7"]

    buckets = buckets_of(hashes_of([word.encode() for word in words], len(words)), BUCKETS)

    assert buckets.tolist() == [752, 57, 138, 1005, 956, 172, 5]


def test_the_words_are_those_of_the_agent_and_the_user_but_not_of_tool_results():
    steps = [
        {"type": "thought", "content": "Look: the LOCK"},
        {"type": "tool_call", "tool": {"name": "shell"}, "input": {"command": "cat a_lock 修理"}},
        {"type": "observation", "tool": {"name": "shell"}, "content": "secret"},
        {"type": "observation", "content": "please hurry"},
    ]
    trace = made("The lock is stale", steps)

    expected = "the lock is stale look shell command cat a_lock 修 理 修理 please hurry"
    assert {*distinct_words(trace).split()} == {*expected.split()}


def test_a_word_counts_once_in_each_part_of_the_text():
    trace = made("stale lock stale", [{"type": "thought", "content": "stale stale"}])

    assert distinct_words(trace) == "stale lock stale"


def test_the_words_of_a_file_are_those_of_the_stream(real_traces):
    for line in real_traces:
        decoded = count_trace(decode_trace(line, 2**24), Reading.WORDS)
        assert counts_of(line, Reading.WORDS) == decoded


def test_the_stream_hashes_the_words_that_files_name(real_traces):
    for line in real_traces:
        trace = decode_trace(line, 2**24)
        words = distinct_words(trace).encode().split()
        expected = buckets_of(hashes_of(words, len(words)), BUCKETS)
        assert sorted(np.frombuffer(word_buckets(trace), np.uint16)) == sorted(expected)


def test_words_beyond_the_limit_of_the_steps_are_not_read():
    steps = [{"type": "thought", "content": f"{'x' * 99} " * 350}, {"type": "thought", "content": "end"}]

    assert "end" not in distinct_words(made("stale", steps)).split()


PIECES = ["lock", "ΑΣ", "İ", "修理", "กข", "\0", " ", "\n", '"', "\\", ".", "é", "_", "null", "x" * 99]
TEXTS = st.lists(st.sampled_from(PIECES)).map("".join)
LEAVES = TEXTS | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
INPUTS = st.dictionaries(TEXTS, st.recursive(LEAVES, st.lists), max_size=3)


@given(TEXTS, TEXTS, INPUTS, st.booleans(), st.sampled_from([1, 1, 1000]))
def test_the_words_are_those_of_the_text_that_an_embedder_reads(objective, content, given, is_raw, times):
    """A separator in the trace ends no part, white space of any kind is the same, and long texts are cut."""
    steps = [
        {"type": "thought", "content": content * times},
        {"type": "tool_call", "tool": {"name": "shell"}, "input": given},
        {"type": "observation", "content": f"{content} end"},
    ]
    trace = made(objective or "lock", steps)
    if is_raw:
        trace.steps[1].input = msgspec.Raw(json.dumps(given).encode())
    parts, is_cut = parts_of(embedding_text(trace, "parts"))
    read, is_read_cut = parts_of(words_text(trace))

    expected = [word for part in parts for word in dict.fromkeys(words_of(part))]

    assert distinct_words(trace).encode().split() == expected
    assert ([*map(words_of, read)], is_read_cut) == ([*map(words_of, parts)], is_cut)
