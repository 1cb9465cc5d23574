"""A broker that soon forgets idle producers and old records, and is strict about the members of groups."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from knowledgepulse_kafka.own_request import OwnRequest
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from support import metrics_page as page
from support.brokers import configured_broker
from support.commands import invoked, kp_worker
from support.streams import READY_LIMIT, Message, Stream, admin_of, own_settings, source_of

pytestmark = pytest.mark.integration

_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)


class _TransactionsResponse(Response):
    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_states", CompactArray(_TEXT)),
        ("transactions", CompactArray(("id", _TEXT), ("producer_id", Int64), ("state", _TEXT), _TAGS)),
        _TAGS,
    )


class _TransactionsRequest(OwnRequest, RequestStruct):
    """Requests the transactional ids that a coordinator knows."""

    NEEDS = "Kafka 3.0 or later"
    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TransactionsResponse
    SCHEMA = Schema(("states", CompactArray(_TEXT)), ("producer_ids", CompactArray(Int64)), _TAGS)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """The address of a broker that forgets producers and records soon, and admits one patient member."""
    settings = {
        "log.retention.check.interval.ms": "500",
        "transactional.id.expiration.ms": "2000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        "group.max.size": "1",
        "group.min.session.timeout.ms": "7000",
    }
    with configured_broker(tmp_path_factory.mktemp("strict"), settings) as servers:
        yield servers


async def forgotten(servers):
    """Wait until the broker knows no transactional id."""
    async with asyncio.timeout(READY_LIMIT), admin_of(servers) as admin:
        while (await admin._send_request(_TransactionsRequest([], [], {}))).transactions:
            await asyncio.sleep(0.2)


async def test_a_worker_whose_producer_was_forgotten_starts_it_again(servers, tmp_path, real_traces):
    stream = Stream(own_settings(servers, "idle", {"embedding": {"backend": "lexical"}}), tmp_path)
    await stream.create_topics(2)
    async with stream.worker() as worker:
        raw = await stream.publish([Message(value) for value in real_traces[:5]])
        await stream.outputs(worker, raw)
        for number in range(5, 15, 5):
            await forgotten(servers)
            raw = await stream.publish([Message(value) for value in real_traces[number : number + 5]])
            outputs = await stream.outputs(worker, raw)
        assert await worker.stop() == 0

    assert sorted(map(source_of, outputs)) == [(record.partition, record.offset) for record in raw]
    assert worker.log().count("transactional.id.expiration.ms; it starts again") >= 2
    for never in ("starting it again in", "Traceback", "ERROR"):
        assert never not in worker.log()


async def without_records(stream, *topics):
    """Wait until the brokers have deleted all records of topics of one partition."""
    places = [TopicPartition(topic, 0) for topic in topics]
    async with (
        asyncio.timeout(READY_LIMIT),
        AIOKafkaConsumer(bootstrap_servers=stream.settings.kafka.bootstrap_servers) as consumer,
    ):
        while await consumer.beginning_offsets(places) != await consumer.end_offsets(places):
            await asyncio.sleep(0.1)


async def test_what_retention_deleted_while_no_worker_ran_is_named(servers, tmp_path, config, real_traces):
    """Records of raw; the changelog, which had cleanup.policy=delete by mistake, in whole and in part."""
    stream = Stream(own_settings(servers, "away", {"embedding": {"backend": "lexical"}}), tmp_path)
    await stream.create_topics(1)
    raw, changelog = stream.settings.topics.raw, changelog_topic_name(stream.settings.kafka.group)
    await stream.scored(await stream.publish([Message(value) for value in real_traces[:10]]))
    await stream.publish([Message(value) for value in real_traces[10:20]])
    await stream.configure_topic(raw, {"retention.ms": "1"})
    await stream.configure_topic(changelog, {"cleanup.policy": "delete", "retention.ms": "1"})
    await without_records(stream, raw, changelog)
    await stream.configure_topic(raw, {"retention.ms": "-1"})
    refused = await invoked("check", "--config", config(stream.settings))

    await stream.configure_topic(changelog, {"cleanup.policy": "compact"})
    async with stream.worker() as emptied:
        await stream.outputs(emptied, await stream.publish([Message(value) for value in real_traces[20:30]]))
        await emptied.shows(10, "kp_skipped_offsets_total")
        await emptied.shows(1, "kp_cache_resets_total", reason="lost")
        assert await emptied.stop() == 0

    await stream.configure_topic(changelog, {"cleanup.policy": "delete", "retention.ms": "-1"})
    half = 20
    await stream.delete_records(changelog, 0, half)
    await stream.configure_topic(changelog, {"cleanup.policy": "compact"})
    async with stream.worker() as halved:
        await stream.outputs(halved, await stream.publish([Message(real_traces[30])]))
        await halved.shows(1, "kp_cache_resets_total", reason="lost")
        assert await halved.stop() == 0

    assert refused.exit_code == os.EX_CONFIG
    assert f"{changelog} has cleanup.policy=delete, must have compact" in " ".join(refused.output.split())
    assert f"offsets 10 to 19 were deleted from {raw} before they were read" in emptied.log()
    assert "the changelog lacks the entries before offset 10, the group's position" in emptied.log()
    assert f"the records of {changelog} before offset {half} were deleted, as with " in halved.log()


async def keeps_starting(worker, error):
    """Wait until readiness, page and metric say that a worker keeps starting, and why."""
    async with asyncio.timeout(READY_LIMIT):
        await worker.logged("starting it again in")
        found = {"text": ""}
        while not found["text"].endswith(f"; the last error: {error}"):
            await asyncio.sleep(0.05)
            found = await worker.verdict()
    assert ((await worker.get("/readyz"))[0], found["state"], found["runbook"]) == (
        503,
        "starting",
        "starting",
    )
    shown = json.loads((await worker.get("/api/status"))[1])["verdict"]
    assert (shown["state"], shown["since"]) == ("starting", found["since"])
    metrics = (await worker.get("/metrics"))[1]
    assert page.value(metrics, "kp_state", state="starting") == 1


async def test_a_worker_that_its_group_does_not_admit_names_the_brokers_setting(servers, tmp_path, config):
    """The other worker has all partitions, so nothing else tells."""
    stream = Stream(own_settings(servers, "refused", {"embedding": {"backend": "none"}}), tmp_path)
    await stream.create_topics(2)
    group = stream.settings.kafka.group
    hasty = stream.configured(kafka={"group": f"{group}-hasty", "session_timeout": 6.0})
    async with stream.worker() as owner:
        await owner.owns(2)
        async with stream.worker() as second:
            await keeps_starting(second, f"kafka.group: {group}: it is full (group.max.size of the brokers)")
    status, _, errors = await kp_worker("run", "--config", config(hasty))
    assert status == os.EX_CONFIG
    assert (
        "kafka.session_timeout: the brokers do not accept it; it must be within their "
        "group.min.session.timeout.ms and group.max.session.timeout.ms"
    ) in errors
