"""The topics of `kp-worker assemble`."""

import pytest

from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_worker.settings import AssembleSettings, Settings
from knowledgepulse_worker.tools.assemble.assembly_topics import require_topics
from support.topics import NAMES

ASSEMBLE = AssembleSettings()
ASSEMBLED = "knowledgepulse-worker-assembled"


async def test_late_spans_and_published_runs_get_topics_like_that_of_spans(admin, brokers, fit):
    fit()
    brokers.add(ASSEMBLE.spans, 3, **{"max.message.bytes": "5000"})

    topics = await require_topics(admin, Settings())

    assert (topics[ASSEMBLE.late].partitions, topics[ASSEMBLE.late].max_message_bytes) == (3, 5000 + 2**20)
    assert (topics[ASSEMBLED].partitions, topics[ASSEMBLED].cleanup_policy) == (3, "compact")
    assert {NAMES.raw, NAMES.dead_letter, ASSEMBLE.spans} < topics.keys()


async def test_a_compacted_topic_of_spans_is_warned_of(admin, brokers, fit, caplog):
    """Of 248 records, 70 were left, and 14 of 20 runs had lost their roots, without a line."""
    fit()
    brokers.add(ASSEMBLE.spans, 3, **{"cleanup.policy": "compact"})

    await require_topics(admin, Settings())

    assert f"{ASSEMBLE.spans} has cleanup.policy=compact: brokers remove spans" in caplog.text


async def test_a_missing_topic_of_spans_is_named(admin, fit):
    fit()
    with pytest.raises(TopicError, match=f"^missing: {ASSEMBLE.spans}; "):
        await require_topics(admin, Settings())


@pytest.mark.parametrize("name", [NAMES.raw, ASSEMBLE.spans, ASSEMBLED])
async def test_late_spans_need_a_topic_of_their_own(admin, brokers, fit, name):
    fit()
    brokers.add(ASSEMBLE.spans, 3)
    with pytest.raises(TopicError, match="must differ from each other and from all other topics"):
        await require_topics(admin, Settings(assemble={"late": name}))


@pytest.mark.parametrize(
    ("partitions", "policy", "problem"),
    [(2, "compact", "has 2 partitions, but otlp_spans has 3"), (3, "delete", "must have compact")],
)
async def test_a_record_of_published_runs_that_would_forget_some_is_refused(
    admin, brokers, fit, partitions, policy, problem
):
    fit()
    brokers.add(ASSEMBLE.spans, 3)
    brokers.add(ASSEMBLED, partitions, **{"cleanup.policy": policy})
    with pytest.raises(TopicError, match=problem):
        await require_topics(admin, Settings())
