"""The topic of policies: what a reader makes of it."""

import asyncio
import json
from contextlib import nullcontext

import pytest
from hypothesis import given

from knowledgepulse_kafka.errors import DeliveryError
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.kafka import policy_topic
from knowledgepulse_worker.kafka.policy_topic import _complete, last_policy, read_policies
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import Settings
from support.drawn_policies import POLICIES
from support.written import Written

TOPIC = "a-group-policies"


@pytest.fixture
async def kept():
    """Append a policy as workers do; `kept(policy, timestamp)`."""
    topic = Written(TOPIC)

    def keep(policy, timestamp=0, *, key=None, value=None):
        value = value or _complete(policy).model_dump_json(exclude_none=True).encode()
        key = key or policy.digest.encode()
        topic.append(Record(TOPIC, 0, 0, timestamp, 0, key, value, None, len(key), len(value), ()))

    keep.reader = topic.reader
    return keep


async def test_policies_are_listed_in_the_order_in_which_they_last_came_into_force(kept):
    lax, strict = Policy(threshold=0.4), Policy(threshold=0.9)
    for timestamp, policy in enumerate((lax, strict, lax)):
        kept(policy, timestamp)

    history = await read_policies(kept.reader, TOPIC)

    assert [(entry.policy.threshold, entry.since_ms) for entry in history] == [(0.9, 1), (0.4, 2)]


@given(POLICIES)
def test_a_kept_policy_is_complete_and_has_the_digest_of_the_one_in_force(policy):
    """Later releases may come with other reference weights."""
    complete = Policy.model_validate_json(
        _complete(policy).model_dump_json(exclude_none=True, exclude_unset=True)
    )

    assert complete.digest == policy.digest
    assert complete.domains.keys() == policy.profiles.keys()
    assert all(domain.weights for domain in complete.domains.values())
    assert all((domain.threshold is None) != (domain.share is None) for domain in complete.domains.values())


async def test_a_kept_policy_has_the_words_that_a_person_is_shown(kept):
    words = {"unit": 0.01, "mean": 0.1, "weights": "AAAA" * 341 + "AQ==", "strongest": {1023: "stale 修"}}
    learned = {"share": 1, "facts_version": 1, "intercept": 0, "terms": {}, "words": words}
    policy = Policy.model_validate({"domains": {"code": {"learned": learned}}})
    kept(policy)

    (published,) = await read_policies(kept.reader, TOPIC)

    assert published.policy.domains["code"].learned == policy.domains["code"].learned


def test_a_policy_without_a_guard_is_kept_in_the_form_of_earlier_releases():
    """They know no other member, and read the topic at their start."""
    kept = _complete(Policy()).model_dump_json(exclude_none=True, exclude_unset=True)

    assert json.loads(kept).keys() == {"threshold", "domains"}


@pytest.mark.parametrize("value", [b"garbage", b'{"threshold": 7}', b'{"later": 1}', b"null"])
async def test_records_that_are_no_policy_are_skipped_and_logged_once(kept, caplog, value):
    kept(Policy(threshold=0.4))
    kept(Policy(), value=value)
    kept(Policy(), value=value)

    history = await read_policies(kept.reader, TOPIC)

    assert [entry.policy.threshold for entry in history] == [0.4]
    assert caplog.messages == [
        f"{TOPIC}: foreign records skipped: 2, such as offset 1 (not a policy of this release)"
    ]


async def test_a_policy_under_another_key_is_skipped_and_logged(kept, caplog):
    """As after a release that computes other digests: outputs name the policy by another one."""
    kept(Policy(), key=b"0123456789ab")

    assert await read_policies(kept.reader, TOPIC) == []
    assert caplog.messages == [
        (
            f"{TOPIC}: foreign records skipped: 1, such as offset 0 "
            f"(policy {Policy().digest} has another policy's digest as its key)"
        )
    ]


async def test_a_policy_under_the_key_of_earlier_releases_is_the_same_policy(kept):
    kept(Policy(), key=Policy().digest[:12].encode())
    kept(Policy(threshold=0.9))
    kept(Policy(), 7)

    history = await read_policies(kept.reader, TOPIC)

    assert [(entry.policy.threshold, entry.since_ms) for entry in history] == [(0.9, 0), (0.75, 7)]


async def test_a_topic_without_policies_has_no_last_one(kept):
    assert await last_policy(kept.reader, TOPIC) is None

    kept(Policy(), value=b"garbage")

    assert await last_policy(kept.reader, TOPIC) is None


@pytest.mark.parametrize("foreign", [0, 1, 7, 8, 9, 100])
async def test_the_last_policy_is_found_behind_any_number_of_foreign_records(kept, foreign):
    for threshold in (0.4, 0.9):
        kept(Policy(threshold=threshold), 7)
    for _ in range(foreign):
        kept(Policy(), value=b"garbage")

    last = await last_policy(kept.reader, TOPIC)

    assert last is not None
    assert (last.policy.threshold, last.since_ms) == (0.9, 7)


async def test_a_policy_that_the_brokers_do_not_confirm_is_told(kept, monkeypatch):
    class Silent:
        async def send(self, *_):
            return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(policy_topic, "TopicReader", lambda *_: nullcontext(kept.reader))
    monkeypatch.setattr(policy_topic, "IdempotentPublisher", lambda _: nullcontext(Silent()))
    kafka = Settings(kafka={"group": "a-group"}).kafka.model_copy(update={"request_timeout": 0.1})

    with pytest.raises(DeliveryError, match=r"^a-group-policies: not confirmed within 0\.1 s$"):
        await policy_topic.keep_policy(Settings(kafka=kafka), Policy())


async def test_only_the_end_of_the_topic_is_read_for_the_last_policy(kept, monkeypatch):
    for number in range(1_000):
        kept(Policy(threshold=number / 1_000))
    read, original = [], kept.reader.read
    monkeypatch.setattr(kept.reader, "read", lambda *where: read.extend(where[2]) or original(*where))

    last = await last_policy(kept.reader, TOPIC)

    assert last is not None
    assert last.policy.threshold == 0.999
    assert len(read) < 20
