"""Creating topics while brokers learn of them one by one, and reporting unsuitable ones."""

import re
from dataclasses import replace

import pytest
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    InvalidPartitionsError,
    TopicAuthorizationFailedError,
)

from knowledgepulse_kafka import admin as kafka_admin
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.worker_topics import LAST_RESORT_BYTES, LEDGER_ENTRY_BYTES, differences
from knowledgepulse_worker.settings import KafkaSettings
from support.topics import CHANGELOG, DAY_MS, NAMES, POLICIES


async def test_topics_are_created_even_if_the_next_broker_does_not_know_the_last_one(admin, brokers):
    """The new topic's partition count is used; looking it up again was a KeyError."""
    created = await admin.create_missing(partitions=5, replication_factor=1)

    assert {name: topic.partitions for name, topic in created.items()} == brokers.partitions
    assert brokers.partitions == dict.fromkeys((NAMES.raw, *NAMES.outputs, CHANGELOG), 5) | {POLICIES: 1}


async def test_a_topic_is_created_only_if_it_is_missing(admin, brokers):
    brokers.add("here", 3)

    for name in ("here", "missing"):
        await admin.create_if_missing(name, 4, {})

    assert brokers.partitions == {"here": 3, "missing": 4}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raw-tracs", "does not exist; did you mean raw-traces?"),
        ("xyz", "does not exist; `kp-worker topics`"),
    ],
)
async def test_the_nearest_topic_is_named_for_a_missing_one_which_is_not_created(
    admin, brokers, name, message
):
    brokers.add("raw-traces", 3)
    await admin.require_existing("raw-traces")

    with pytest.raises(TopicError, match=re.escape(f"the topic {name} {message}")):
        await admin.require_existing(name)

    assert brokers.partitions == {"raw-traces": 3}


async def test_a_start_with_a_misspelt_topic_names_the_nearest_one(admin, brokers):
    for name in ("raw-trace", "something-else", *NAMES.outputs):
        brokers.add(name, 2)

    with pytest.raises(TopicError, match=f"missing: {NAMES.raw}; did you mean raw-trace[?] Otherwise, "):
        await admin.require()


async def test_a_new_changelog_is_found_whichever_broker_answers(admin, brokers):
    for name in (NAMES.raw, *NAMES.outputs):
        brokers.add(name, 2)

    topics = await admin.require()

    assert topics[CHANGELOG].partitions == 2


async def test_a_changelog_follows_a_raw_topic_that_has_more_partitions(admin, brokers, fit):
    fit()
    brokers.partitions[NAMES.raw] = 6

    topics = await admin.require()

    assert brokers.partitions[CHANGELOG] == topics[CHANGELOG].partitions == 6


async def test_without_the_right_to_add_partitions_the_log_says_who_may_and_the_changelog_stays(
    admin, brokers, fit, caplog
):
    fit()
    brokers.partitions[NAMES.raw] = 6
    brokers.refusal = TopicAuthorizationFailedError(CHANGELOG)

    topics = await admin.require()

    assert topics[CHANGELOG].partitions == 4
    assert f"Alter on topic {CHANGELOG}; `kp-worker topics` adds them for a user who may" in caplog.text


async def test_partitions_that_another_worker_has_added_meanwhile_are_no_error(admin, brokers, fit):
    fit()
    topics = await admin.existing()
    topics[NAMES.raw] = replace(topics[NAMES.raw], partitions=6)
    brokers.partitions[CHANGELOG] = 6
    brokers.refusal = InvalidPartitionsError()

    assert (await admin.grow_changelog(topics)).partitions == 6


async def test_new_output_topics_accept_and_keep_whatever_raw_accepts(admin, brokers):
    brokers.add(NAMES.raw, 1, **{"max.message.bytes": "5000", "message.timestamp.after.max.ms": "77"})

    created = await admin.create_missing(partitions=9, replication_factor=1)

    for name in NAMES.outputs:
        output = created[name]
        assert (output.partitions, output.max_message_bytes) == (1, 5000 + 2**20)
        assert (output.retention_ms, output.timestamp_after_max_ms) == (-1, 77)
        assert output.timestamp_type == "CreateTime"
    assert [*differences({NAMES.raw: (await admin.existing())[NAMES.raw]} | created, NAMES)] == []


async def test_the_topic_of_redacted_copies_is_an_output_like_the_others(brokers, admin, fit):
    names = NAMES.model_copy(update={"redacted": "copies"})
    redacting = TopicAdmin(KafkaSettings(), names)
    fit()

    with pytest.raises(TopicError, match=r"^missing: copies; `kp-worker topics` creates them"):
        await redacting.require()

    created = await redacting.create_missing(partitions=9, replication_factor=1)
    assert created.keys() == {"copies"}
    assert (created["copies"].partitions, created["copies"].retention_ms) == (4, -1)
    brokers.add("copies", 4, **{"retention.ms": "1"})
    found = differences(await redacting.require(), names)
    assert any(difference.startswith("copies has retention.ms=1") for difference in found)


async def test_committed_offsets_wait_for_a_coordinator_that_is_being_elected_or_loads_the_group(
    admin, brokers, monkeypatch
):
    """Its response then has no partitions, and an error that the client ignores; this was a KeyError."""
    monkeypatch.setattr(kafka_admin, "_RETRY_PAUSE", 0.0)
    brokers.add(NAMES.raw, 2)
    brokers.coordinators = [GroupCoordinatorNotAvailableError(), [], [7, -1]]

    assert await admin.committed((await admin.existing())[NAMES.raw]) == [7, 0]


async def test_a_group_without_a_coordinator_is_named(brokers, admin):
    brokers.add(NAMES.raw, 2)
    brokers.coordinators = [[] for _ in range(1000)]
    impatient = TopicAdmin(KafkaSettings().model_copy(update={"request_timeout": 0.1}), NAMES)

    with pytest.raises(TopicError, match="raw-traces: no coordinator for the group knowledgepulse-worker"):
        await impatient.committed((await admin.existing())[NAMES.raw])


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("name", [CHANGELOG, POLICIES])
async def test_a_compacted_topic_with_retention_is_rejected(admin, fit, name, policy):
    fit(name, **{"cleanup.policy": policy})

    with pytest.raises(TopicError, match=f"{name} has cleanup.policy={policy}, must have compact: "):
        await admin.require()


@pytest.mark.parametrize(
    ("name", "least"), [(CHANGELOG, LEDGER_ENTRY_BYTES), (NAMES.dead_letter, LAST_RESORT_BYTES)]
)
async def test_a_topic_with_too_small_a_size_limit_is_rejected(admin, fit, name, least):
    fit(name, **{"max.message.bytes": str(least - 1)})

    with pytest.raises(
        TopicError, match=rf"{name} has max\.message\.bytes={least - 1}, must have at least {least}: "
    ):
        await admin.require()


async def test_a_broker_that_reports_only_the_size_limit_is_accepted(admin, brokers, fit):
    fit()
    for name in brokers.configs:
        brokers.configs[name] = {"max.message.bytes": "3000000"}

    assert [*differences(await admin.require(), NAMES)]


RAW = Topic(NAMES.raw, 4, 1_000, "delete", retention_ms=7 * DAY_MS, timestamp_after_max_ms=3_600_000)
OUTPUT = Topic("", 4, 1_000 + 2**20, "delete", timestamp_after_max_ms=3_600_000)


def warnings_about(raw=RAW, **changes):
    """Return the warnings when one output topic has other settings."""
    outputs = {name: replace(OUTPUT, name=name) for name in (NAMES.rejected, NAMES.dead_letter)}
    changed = replace(OUTPUT, name=NAMES.contribute, **changes)
    return [*differences({NAMES.raw: raw, NAMES.contribute: changed, **outputs}, NAMES)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partitions": 2}, "contribute has 2 partitions, raw-traces has 4: the key decides"),
        ({"max_message_bytes": 1_000}, "contribute has max.message.bytes=1000, should have at least 1049576"),
        ({"timestamp_type": "LogAppendTime"}, "contribute has message.timestamp.type=LogAppendTime: "),
        (
            {"timestamp_after_max_ms": 5},
            "contribute has message.timestamp.after.max.ms=5, raw-traces has 3600000: ",
        ),
        (
            {"timestamp_before_max_ms": DAY_MS},
            f"contribute has message.timestamp.before.max.ms={DAY_MS}, raw-traces any: ",
        ),
        ({"retention_ms": DAY_MS}, f"contribute has retention.ms={DAY_MS}, raw-traces has {7 * DAY_MS}: "),
        ({"retention_bytes": 10}, "contribute has retention.bytes=10, raw-traces has -1: "),
        ({"cleanup_policy": "compact,delete"}, "contribute has cleanup.policy=compact,delete: "),
    ],
)
def test_a_warning_names_topic_setting_and_values(changes, words):
    (line,) = warnings_about(**changes)

    assert line.startswith(words)


@pytest.mark.parametrize(
    ("raw", "changes"),
    [
        (RAW, {"retention_ms": 7 * DAY_MS}),
        (RAW, {"timestamp_before_max_ms": 2**63 - 1}),
        (replace(RAW, timestamp_type="LogAppendTime", timestamp_after_max_ms=2**63 - 1), {}),
    ],
    ids=["as long as raw", "any time", "raw has the append time"],
)
def test_harmless_differences_cause_no_warning(raw, changes):
    assert warnings_about(raw, **changes) == []


def test_a_compacted_raw_topic_loses_traces_of_the_same_key_and_sets_no_retention():
    """Of 60 traces with three keys, 13 were scored, without a line about the others."""
    (line,) = warnings_about(replace(RAW, cleanup_policy="compact"))

    assert line.startswith("raw-traces has cleanup.policy=compact: brokers remove a trace once ")
