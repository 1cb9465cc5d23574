"""The words of a trace are the same wherever they are read, and keep their buckets."""

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import BUCKETS, Reading
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.records.decode_content import counts_of
from knowledgepulse_worker.scoring import count_trace
from knowledgepulse_worker.scoring.words import buckets_of, distinct_words, hashes_of


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
    trace = ReasoningTrace.new(
        objective="The lock is stale", steps=steps, result_summary="done", confidence=0.5, success=True,
        task_domain="code", visibility="org", privacy_level="private",
    )  # fmt: skip

    expected = "the lock is stale look shell command cat a_lock 修 理 修理 please hurry"
    assert {*distinct_words(trace).split()} == {*expected.split()}


def test_a_word_counts_once_in_each_part_of_the_text():
    trace = ReasoningTrace.new(
        objective="stale lock stale", steps=[{"type": "thought", "content": "stale stale"}],
        result_summary="done", confidence=0.5, success=True, task_domain="code", visibility="org",
        privacy_level="private",
    )  # fmt: skip

    assert distinct_words(trace) == "stale lock stale"


def test_the_words_of_a_file_are_those_of_the_stream(real_traces):
    for line in real_traces:
        decoded = count_trace(decode_trace(line, 2**24), Reading.WORDS)
        assert counts_of(line, Reading.WORDS) == decoded
