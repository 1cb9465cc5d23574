"""The topic of policies: what a reader makes of it."""

import json

import pytest
from hypothesis import given

from fakes.memory_reader import MemoryReader
from knowledgepulse_worker.errors import TopicError
from knowledgepulse_worker.kafka.policy_topic import _complete, read_policies
from knowledgepulse_worker.kafka.topic_reader import Record
from knowledgepulse_worker.policy import Policy
from support.drawn_policies import POLICIES

TOPIC = "a-group-policies"


@pytest.fixture
def kept():
    """Append a policy as workers do; `kept(policy, timestamp)`."""
    reader = MemoryReader()

    def keep(policy, timestamp=0, *, key=None, value=None):
        value = value or _complete(policy).model_dump_json(exclude_none=True).encode()
        key = key or policy.digest.encode()
        reader.append(Record(TOPIC, 0, 0, timestamp, 0, key, value, None, len(key), len(value), ()))

    keep.reader = reader
    return keep


async def test_policies_are_listed_in_the_order_in_which_they_last_came_into_force(kept):
    lax, strict = Policy(threshold=0.4), Policy(threshold=0.9)
    for timestamp, policy in enumerate((lax, strict, lax)):
        kept(policy, timestamp)

    history = await read_policies(kept.reader, TOPIC)

    assert [(one.policy.threshold, one.since_ms) for one in history] == [(0.9, 1), (0.4, 2)]


async def test_a_topic_without_policies_has_no_history(kept):
    assert await read_policies(kept.reader, TOPIC) == []


@given(POLICIES)
def test_a_kept_policy_is_complete_and_has_the_digest_of_the_one_in_force(policy):
    """Later releases may come with other reference weights."""
    complete = Policy.model_validate_json(_complete(policy).model_dump_json(exclude_none=True))

    assert complete.digest == policy.digest
    assert complete.domains.keys() == policy.profiles.keys()
    assert all(domain.weights and domain.threshold is not None for domain in complete.domains.values())


def test_a_policy_without_a_guard_is_kept_in_the_form_of_earlier_releases():
    """They know no other member, and read the topic at their start."""
    assert json.loads(_complete(Policy()).model_dump_json(exclude_none=True)).keys() == {
        "threshold",
        "domains",
    }


@pytest.mark.parametrize("value", [b"garbage", b'{"threshold": 7}', b"null"])
async def test_something_else_in_the_topic_is_named_with_its_offset(kept, value):
    kept(Policy())
    kept(Policy(), value=value)

    with pytest.raises(TopicError, match=f"{TOPIC}, offset 1: not a policy; delete this record"):
        await read_policies(kept.reader, TOPIC)


async def test_a_policy_under_another_key_is_named_with_its_offset(kept):
    kept(Policy(), key=b"0123456789ab")

    with pytest.raises(TopicError, match=f"{TOPIC}, offset 0: the policy {Policy().digest} has the key of"):
        await read_policies(kept.reader, TOPIC)
