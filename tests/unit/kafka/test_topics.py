"""Creating topics while brokers learn of them one by one, and reporting unsuitable ones."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError
from aiokafka.structs import OffsetAndMetadata

from worker.errors import TopicError
from worker.kafka import topics
from worker.kafka.topics import LAST_RESORT_BYTES, LEDGER_ENTRY_BYTES, Topic, TopicAdmin, differences
from worker.settings import AssembleSettings, KafkaSettings, TopicSettings

NAMES = TopicSettings()
CHANGELOG = "knowledgepulse-worker-ledger-changelog"
POLICIES = "knowledgepulse-worker-policies"
DAY_MS = 86_400_000
DEFAULTS = {
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
    "retention.ms": str(7 * DAY_MS),
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
}


class Response(NamedTuple):
    resources: Any = ()
    topic_errors: Any = ()


class Brokers:
    """A fake admin client of several brokers, asked in turn; only the first knows of recent changes.

    A topic reaches each of the others once that broker was asked for its topics and did not know it.
    """

    def __init__(self, count=3):
        self.configs = {}
        self.partitions = {}
        self._known = [set() for _ in range(count)]
        self._asked = -1
        self.coordinators = []

    async def start(self): ...

    async def close(self): ...

    def add(self, name, partitions, **config):
        self.partitions[name] = partitions
        self.configs[name] = DEFAULTS | config
        for known in self._known:
            known.add(name)

    async def create_topics(self, topics):
        for topic in topics:
            self.partitions[topic.name] = topic.num_partitions
            self.configs[topic.name] = DEFAULTS | topic.topic_configs
            self._asked = -1
            self._known[0].add(topic.name)
        return Response(topic_errors=[(topic.name, 0, None) for topic in topics])

    async def list_topics(self):
        self._asked = (self._asked + 1) % len(self._known)
        known = set(self._known[self._asked])
        self._known[self._asked] |= self.partitions.keys()
        return known

    async def describe_topics(self, names):
        return [
            {"topic": name, "error_code": 0, "partitions": [None] * self.partitions[name]} for name in names
        ]

    async def list_consumer_group_offsets(self, group, partitions):
        answer = self.coordinators.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {at: OffsetAndMetadata(offset, "") for at, offset in zip(partitions, answer, strict=False)}

    async def describe_configs(self, resources):
        return [
            Response(
                [(0, None, 2, one.name, [(key, value) for key, value in self.configs[one.name].items()])]
            )
            for one in resources
        ]


@pytest.fixture
def brokers():
    return Brokers()


@pytest.fixture
def admin(brokers, monkeypatch):
    monkeypatch.setattr("worker.kafka.topics.AIOKafkaAdminClient", lambda **_: brokers)
    return TopicAdmin(KafkaSettings(), NAMES)


@pytest.fixture
def fit(brokers):
    """Add topics as `kp-worker topics` would, with changed settings for one of them."""

    def add(changed="", **config):
        for name in (NAMES.raw, NAMES.contribute, NAMES.rejected, NAMES.dead_letter, CHANGELOG, POLICIES):
            own = {"cleanup.policy": "compact"} if name in (CHANGELOG, POLICIES) else {}
            brokers.add(name, 4, **(own | (config if name == changed else {})))

    return add


async def test_topics_are_created_even_if_the_next_broker_does_not_know_the_last_one(admin, brokers):
    """The new topic's partition count is used; looking it up again was a KeyError."""
    created = await admin.create_missing(partitions=5, replication_factor=1)

    assert {name: topic.partitions for name, topic in created.items()} == brokers.partitions
    assert brokers.partitions == dict.fromkeys((NAMES.raw, *admin.outputs, CHANGELOG), 5) | {POLICIES: 1}


async def test_a_new_changelog_is_found_whichever_broker_answers(admin, brokers):
    for name in (NAMES.raw, *admin.outputs):
        brokers.add(name, 2)

    topics = await admin.require()

    assert topics[CHANGELOG].partitions == 2


async def test_new_output_topics_accept_and_keep_whatever_raw_accepts(admin, brokers):
    brokers.add(NAMES.raw, 1, **{"max.message.bytes": "5000", "message.timestamp.after.max.ms": "77"})

    created = await admin.create_missing(partitions=9, replication_factor=1)

    for name in admin.outputs:
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


async def test_the_topic_of_evaluations_is_created_once(brokers, admin):
    for _ in range(2):
        await admin.create_evaluations(3)

    assert brokers.partitions == {"otlp_logs": 3}


async def test_committed_offsets_wait_for_a_coordinator_that_is_being_elected_or_loads_the_group(
    admin, brokers, monkeypatch
):
    """Its response then has no partitions, and an error that the client ignores; this was a KeyError."""
    monkeypatch.setattr(topics, "_RETRY_PAUSE", 0.0)
    brokers.add(NAMES.raw, 2)
    brokers.coordinators = [GroupCoordinatorNotAvailableError(), [], [7, -1]]

    assert await admin.committed((await admin.existing())[NAMES.raw]) == [7, 0]


async def test_a_group_without_a_coordinator_is_named(brokers, admin):
    brokers.add(NAMES.raw, 2)
    brokers.coordinators = [[] for _ in range(1000)]
    impatient = TopicAdmin(KafkaSettings().model_copy(update={"request_timeout": 0.1}), NAMES)

    with pytest.raises(TopicError, match="raw-traces: no coordinator for the group knowledgepulse-worker"):
        await impatient.committed((await admin.existing())[NAMES.raw])


async def test_suitable_topics_are_accepted(admin, fit):
    fit()

    assert len(await admin.require()) == 6


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


def test_output_topics_as_created_cause_no_warning():
    assert warnings_about() == []


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
        (replace(RAW, cleanup_policy="compact"), {}),
        (replace(RAW, timestamp_type="LogAppendTime", timestamp_after_max_ms=2**63 - 1), {}),
    ],
    ids=["as long as raw", "any time", "raw deletes nothing", "raw has the append time"],
)
def test_harmless_differences_cause_no_warning(raw, changes):
    assert warnings_about(raw, **changes) == []


# --- the topics of `kp-worker assemble`

ASSEMBLE = AssembleSettings()
ASSEMBLED = "knowledgepulse-worker-assembled"


async def test_late_spans_and_published_runs_get_topics_like_that_of_spans(admin, brokers, fit):
    fit()
    brokers.add(ASSEMBLE.spans, 3, **{"max.message.bytes": "5000"})

    topics = await admin.require_for_assembly(ASSEMBLE)

    assert (topics[ASSEMBLE.late].partitions, topics[ASSEMBLE.late].max_message_bytes) == (3, 5000 + 2**20)
    assert (topics[ASSEMBLED].partitions, topics[ASSEMBLED].cleanup_policy) == (3, "compact")
    assert {NAMES.raw, NAMES.dead_letter, ASSEMBLE.spans} < topics.keys()


async def test_a_missing_topic_of_spans_is_named(admin, fit):
    fit()
    with pytest.raises(TopicError, match=f"^missing: {ASSEMBLE.spans}; "):
        await admin.require_for_assembly(ASSEMBLE)


@pytest.mark.parametrize("name", [NAMES.raw, ASSEMBLE.spans, ASSEMBLED])
async def test_late_spans_need_a_topic_of_their_own(admin, brokers, fit, name):
    fit()
    brokers.add(ASSEMBLE.spans, 3)
    with pytest.raises(TopicError, match="need names that no other topic has"):
        await admin.require_for_assembly(ASSEMBLE.model_copy(update={"late": name}))


@pytest.mark.parametrize(
    ("partitions", "policy", "problem"),
    [(2, "compact", "has 2 partitions, otlp_spans has 3"), (3, "delete", "must have compact")],
)
async def test_a_record_of_published_runs_that_would_forget_some_is_refused(
    admin, brokers, fit, partitions, policy, problem
):
    fit()
    brokers.add(ASSEMBLE.spans, 3)
    brokers.add(ASSEMBLED, partitions, **{"cleanup.policy": policy})
    with pytest.raises(TopicError, match=problem):
        await admin.require_for_assembly(ASSEMBLE)
