"""The commands against a real broker."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress

import psutil
import pytest
from aiokafka.partitioner import murmur2

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.kafka.worker_topics import OUTPUT_HEADROOM, changelog_topic_name
from knowledgepulse_worker.tools.demo.processes import free_ports
from knowledgepulse_worker.tools.publish.trace_publisher import TracePublisher
from support import metrics_page as page
from support.backends import FakePhoenix
from support.commands import kp_worker
from support.registry import Registry, register, serving
from support.streams import ARRIVAL_LIMIT, Message, admin_of

pytestmark = pytest.mark.integration

AGENT = "kp:agent:tests"
CLEAN = "knowledgepulse_worker.redaction.sdk:clean"


async def test_topics_creates_missing_topics_and_reports_differences(make_stream, config):
    stream = await make_stream(3)
    topics = stream.settings.topics
    await stream.delete_topic(topics.rejected)
    await stream.recreate_topic(topics.contribute, 2, {"max.message.bytes": "1000"})

    status, output, errors = await kp_worker("topics", "--config", config(stream.settings))

    assert status == 0
    assert f"{topics.raw}: exists, 3 partitions" in output
    assert f"{topics.rejected}: created, 3 partitions" in output
    assert f"{topics.contribute} has 2 partitions, {topics.raw} has 3" in errors
    assert f"{topics.contribute} has max.message.bytes=1000" in errors
    async with TopicAdmin(stream.settings.kafka, topics) as admin:
        existing = await admin.existing()
    assert (
        existing[topics.rejected].max_message_bytes
        == existing[topics.raw].max_message_bytes + OUTPUT_HEADROOM
    )


async def test_check_names_what_would_stop_a_worker_and_changes_nothing(make_stream, config):
    stream = await make_stream(1)
    topics, settings = stream.settings.topics, config(stream.settings)
    changelog = changelog_topic_name(stream.settings.kafka.group)
    await stream.delete_topic(changelog)

    passed = await kp_worker("check", "--config", settings)
    await stream.delete_topic(topics.rejected)
    failed = await kp_worker("check", "--config", settings)

    assert passed[0] == 0
    assert f"topics: ok: {topics.contribute} (1 partition)" in passed[1]
    assert "\nmodel: ok: " in passed[1]
    assert failed[0] == os.EX_CONFIG
    assert "\nkafka: ok: " in failed[1]
    assert f"\ntopics: FAILED: missing: {topics.rejected}; " in failed[1]
    async with TopicAdmin(stream.settings.kafka, topics) as admin:
        assert {changelog, topics.rejected}.isdisjoint(await admin.existing())


async def test_check_goes_on_past_each_part_that_fails(make_stream, config):
    """What only some workers have: a redaction function, a registry, a backend for the scores."""
    backend, registry = FakePhoenix(), Registry()
    stream = await make_stream(
        1, topics={"redacted": f"redacted-{free_ports(1)[0]}"}, redaction={"function": CLEAN}
    )
    async with serving(registry) as registry_url, backend.served() as url:
        key = {"KP_REGISTRY__API_KEY": await register(registry_url, AGENT)}
        own = {"registry": {"url": registry_url, "agent_id": AGENT}}
        arguments = ["check", "--to", "phoenix", url, "--config"]

        passed = await kp_worker(*arguments, config(stream.configured(**own)), **key)
        registry.revoke(AGENT)
        backend.is_down = True
        own["redaction"] = {"function": "json:dumps"}
        failed = await kp_worker(*arguments, config(stream.configured(**own)), **key)

    assert (passed[0], failed[0]) == (0, os.EX_CONFIG)
    names = ["settings", "kafka", "topics", "model", "redaction", "registry", "backend"]
    assert [line.split(":")[0] for line in passed[1].splitlines()] == names
    assert [line.split(":")[0] for line in failed[1].splitlines()] == names
    assert [line.split(":")[0] for line in failed[1].splitlines() if ": FAILED: " in line] == names[-3:]


async def test_topics_adds_partitions_to_the_raw_topic_if_it_is_told_to(make_stream, config):
    stream = await make_stream(2)
    settings, raw = config(stream.settings), stream.settings.topics.raw
    changelog = changelog_topic_name(stream.settings.kafka.group)

    _, without_a_number, _ = await kp_worker("topics", "--config", settings)
    asked = await kp_worker("topics", "--config", settings, "--partitions", "5")
    _, preview, _ = await kp_worker("topics", "--config", settings, "--partitions", "5", "--dry-run")
    status, output, errors = await kp_worker("topics", "--config", settings, "--partitions", "5", "--yes")
    _, again, fewer = await kp_worker("topics", "--config", settings, "--partitions", "3")
    _, _, replicas = await kp_worker("topics", "--config", settings, "--replication-factor", "3")

    assert f"{raw}: exists, 2 partitions" in without_a_number
    assert asked[0] == 1, "without a terminal, nobody could be asked"
    assert f"{raw}: exists, 2 partitions" in asked[1]
    assert f"{raw} has 2 partitions and would have 5, which cannot be undone" in asked[2]
    assert f"{raw}: would be extended, 5 partitions" in preview
    assert status == 0
    assert f"{raw}: extended, 5 partitions" in output
    assert f"{changelog}: extended, 5 partitions" in output
    assert f"contribute has 2 partitions, {raw} has 5: the key decides" in errors
    assert f"{raw}: exists, 5 partitions" in again
    assert f"{raw} has 5 partitions, not 3; Kafka cannot remove partitions" in fewer
    assert "replica" not in fewer
    assert f"differs: {raw} has 1 replica, not 3; kafka-reassign-partitions.sh adds them" in replicas


async def test_publish_sends_lines_unchanged_with_the_requested_key(
    make_stream, config, tmp_path, real_traces
):
    stream = await make_stream(2)
    lines = [*real_traces[:5], b"no trace", b""]
    file = tmp_path / "traces.jsonl"
    file.write_bytes(b"\n".join(lines))

    status, output, errors = await kp_worker(
        "publish", str(file), "--key", "agent_id", "--config", config(stream.settings)
    )

    assert (status, output) == (0, "")
    assert "6 records published" in errors
    assert "1 of them have no agent_id" in errors
    raw = await stream.read(stream.settings.topics.raw)
    assert {record.value: record.key for record in raw} == {
        **{line: json.loads(line)["metadata"]["agent_id"].encode() for line in real_traces[:5]},
        b"no trace": None,
    }


async def test_a_producer_uses_the_partitions_of_kafkas_own_clients(make_stream, real_traces):
    """Traces of an agent must land in the same partition whichever client published them."""
    stream = await make_stream(7)
    traces = [ReasoningTrace.model_validate_json(line) for line in real_traces[:20]]

    async with TracePublisher(stream.settings, "agent_id") as publisher:
        for trace in traces:
            await publisher.publish(trace)

    raw = await stream.read(stream.settings.topics.raw)
    assert murmur2(b"foobar") & 0xFFFFFFFF == -790332482 & 0xFFFFFFFF, "as Kafka's own tests have it"
    assert {record.value for record in raw} == {trace.to_json() for trace in traces}
    assert {record.partition for record in raw} == {
        (murmur2(trace.metadata.agent_id.encode()) & 0x7FFFFFFF) % 7 for trace in traces
    }


async def test_run_without_topics_names_the_command_that_creates_them(make_stream, config):
    stream = await make_stream(1)
    settings = stream.configured(topics={"raw": stream.settings.topics.raw + "-gone"})
    status, _, errors = await kp_worker("run", "--config", config(settings))
    assert status == os.EX_CONFIG
    advice = f"did you mean {stream.settings.topics.raw}? Otherwise, `kp-worker topics` creates them"
    assert f"missing: {settings.topics.raw}; {advice}" in errors
    assert "Traceback" not in errors


async def test_run_waits_for_the_broker_and_names_the_setting(make_stream):
    stream = await make_stream(1)
    async with stream.worker(stream.configured(kafka={"bootstrap_servers": "127.0.0.1:1"})) as worker:
        await worker.logged("trying again in 2 s")
        assert await worker.stop() == 0
    assert "kafka.bootstrap_servers: 127.0.0.1:1" in worker.log()
    assert "Traceback" not in worker.log()


async def test_an_unusable_model_prevents_the_start(make_stream, config):
    """Never a silent novelty of 0.5."""
    stream = await make_stream(1, embedding={"backend": "sentence-transformers", "model": "/no/model"})
    status, _, errors = await kp_worker("run", "--config", config(stream.settings))
    assert status == os.EX_CONFIG
    assert "embedding.model" in errors
    assert "Traceback" not in errors


async def test_serves_metrics_but_not_fausts_own_pages(make_stream, real_traces):
    stream = await make_stream(2)
    raw = await stream.publish(Message(line, partition=n % 2) for n, line in enumerate(real_traces[:20]))
    async with stream.worker() as worker:
        outputs = await stream.outputs(worker, raw)
        await worker.published(20)  # until the first heartbeat, the supervisor serves a page of its own
        status, text = await worker.get("/metrics")
        openmetrics = (await worker.get("/metrics", Accept="application/openmetrics-text"))[1]
        pages = [(await worker.get(path))[0] for path in ("/router/", "/table/", "/graph", "/performance")]

    rejected = sum(record.topic == stream.settings.topics.rejected for record in outputs)
    assert status == 200
    assert page.value(text, "kp_traces_total", outcome="rejected") == rejected
    assert page.value(text, "kp_partitions", state="owned", group=stream.settings.kafka.group) == 2
    assert [sample.value for sample in page.samples(text, "kp_consumer_lag_records")] == [0, 0]
    assert openmetrics.endswith("# EOF\n")
    assert 'trace_id="kp:trace:' in openmetrics
    assert pages == [404] * 4
    assert worker.url.startswith("http://127.0.0.1:")


async def test_the_demo_exits_and_leaves_nothing_behind(broker, tmp_path):
    """It leaves no process, no topic and no file."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    status, output, errors = await kp_worker(
        "demo",
        KAFKA_BOOTSTRAP_SERVERS=broker.bootstrap_servers,
        KP_EMBEDDING__BACKEND="lexical",
        TMPDIR=str(tmp),
        COLUMNS="100",
    )
    assert status == 0, errors
    assert "154 traces" in output
    assert "share that would pass" in output
    assert "at 0.75" in output
    assert "share 0.2; the default is threshold 0.75" in output
    assert "12% of 154 traces pass: 19 contribute" in output
    assert "p99" in output
    assert list(tmp.iterdir()) == []
    assert _processes_with(str(tmp)) == []
    async with asyncio.timeout(ARRIVAL_LIMIT):
        while await _demo_topics(broker):  # a broker may learn later that they are deleted
            await asyncio.sleep(0.1)


def _processes_with(text):
    """Return the processes with this text in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if text in process.environ().values():
                found.append(process)
    return found


async def _demo_topics(broker):
    async with admin_of(broker.bootstrap_servers) as admin:
        return [name for name in await admin.list_topics() if name.startswith("kp-demo-")]
