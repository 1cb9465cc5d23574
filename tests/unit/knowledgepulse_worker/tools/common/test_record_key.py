"""The record key of a trace, from its bytes."""

import json

import pytest

from knowledgepulse_worker.tools.common.record_key import key_of
from support.memory import traced

TRACE = {
    "id": "kp:trace:1",
    "metadata": {"task_domain": "code", "agent_id": "kp:agent:1"},
    "steps": [{"a": 1}],
}


@pytest.mark.parametrize(
    ("key_by", "key"), [("id", b"kp:trace:1"), ("agent_id", b"kp:agent:1"), ("task_domain", b"code")]
)
def test_a_key_is_the_id_or_a_member_of_the_metadata(key_by, key):
    assert key_of(json.dumps(TRACE).encode(), key_by) == key


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'{"id": 1}',
        b'{"id": "a"} {}',
        b'{"metadata": 1}',
        b'{"metadata": {"agent_id": 1}}',
    ],
)
@pytest.mark.parametrize("key_by", ["id", "agent_id"])
def test_without_a_text_in_its_place_there_is_no_key(value, key_by):
    assert key_of(value, key_by) is None


@pytest.mark.parametrize(
    ("members", "key"),
    [
        ({"x": "\ud83d"}, b"a"),
        ({"id": "a\ud83d"}, b"a?"),
        ({"metadata": 1}, b"a"),
        ({"id": "é"}, "é".encode()),
    ],
)
def test_a_trace_that_a_strict_parser_refuses_has_a_key(members, key):
    assert key_of(json.dumps({"id": "a"} | members).encode(), "id") == key


@pytest.mark.parametrize("key_by", ["id", "agent_id", "task_domain"])
def test_a_key_takes_no_memory_for_the_rest_of_the_trace(key_by):
    """The publisher held all of it as objects, which took two to five times its JSON."""
    steps = [{"type": "thought", "content": f"{number} ✅ " + "x" * 50} for number in range(10_000)]
    value = json.dumps(TRACE | {"steps": steps}, ensure_ascii=False).encode()
    with traced() as memory:
        assert key_of(value, key_by)

    assert memory.peak < len(value) / 10
