"""What is published while the line to the broker fails is published once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from contextlib import asynccontextmanager

import pytest

import knowledgepulse_worker.tools.publish.trace_publisher
from chaos.brokers import running_brokers
from chaos.proxy import running_proxy
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.tools.publish.spool import Spool
from knowledgepulse_worker.tools.publish.trace_publisher import TracePublisher, publish_lines
from support.commands import kp_worker
from support.streams import Stream, own_settings

pytestmark = pytest.mark.integration

FIRST, ALL = 100, 150


@pytest.fixture(scope="module")
def node():
    """A broker of these tests' own; through `proxied` it is reached only while there is a proxy."""
    with running_brokers(1) as brokers:
        yield brokers.nodes[0]


@pytest.fixture
async def proxy(node):
    async with running_proxy(node.proxied, node.behind_proxy) as proxy:
        yield proxy


@pytest.fixture
async def stream(node, tmp_path):
    stream = Stream(own_settings(node.direct, "publish"), tmp_path)
    await stream.create_topics(2)
    return stream


@pytest.fixture
def lines():
    """Small ones: neither a pipe nor the client's buffer is full of them when nothing is read or sent."""
    return [b'{"id": "kp:trace:%d"}' % number for number in range(ALL)]


async def publish(publisher, lines):
    """Publish lines, until they are confirmed."""
    for line in lines:
        await publisher.publish(line)
    await publisher.flush()


async def values(stream, least):
    """Wait until the raw topic has this many records; return their values."""
    return [record.value for record in await stream.arrived(least, stream.settings.topics.raw)]


async def test_a_publication_outlasts_an_outage_and_says_that_it_waits(
    node, proxy, stream, lines, monkeypatch, caplog
):
    monkeypatch.setattr(knowledgepulse_worker.tools.publish.trace_publisher, "WARNING_INTERVAL", 0.2)
    publisher = TracePublisher(stream.configured(kafka={"bootstrap_servers": node.proxied}))

    async with publisher:
        await publish(publisher, lines[:FIRST])
        await proxy.cut()
        rest = asyncio.create_task(publish(publisher, lines[FIRST:]))
        async with asyncio.timeout(120):
            while f"{FIRST} confirmed, " not in caplog.text:
                await asyncio.sleep(0.05)
        await proxy.mend()
        await rest

    assert publisher.published.confirmed == ALL
    assert Counter(await values(stream, ALL)) == Counter(lines)


async def test_a_publication_begins_in_an_outage_and_waits_for_its_first_broker(
    node, proxy, stream, lines, caplog
):
    publisher = TracePublisher(stream.configured(kafka={"bootstrap_servers": node.proxied}))
    await proxy.cut()

    publishing = asyncio.create_task(publish_all(publisher, lines))
    async with asyncio.timeout(120):
        while "waiting for a broker" not in caplog.text:
            await asyncio.sleep(0.05)
    await proxy.mend()
    await publishing

    assert Counter(await values(stream, ALL)) == Counter(lines)


async def publish_all(publisher, lines):
    async with publisher:
        await publish(publisher, lines)


async def test_a_confirmation_that_is_lost_publishes_nothing_twice(node, proxy, stream, lines):
    """The broker has the records when the line breaks, and the publisher does not know."""
    publisher = TracePublisher(stream.configured(kafka={"bootstrap_servers": node.proxied}))

    async with publisher:
        await publish(publisher, lines[:FIRST])
        await proxy.hold_answers()
        rest = asyncio.create_task(publish(publisher, lines[FIRST:]))
        await values(stream, FIRST + 1)  # on a busy machine, the others wait for the first confirmation
        assert publisher.published.confirmed == FIRST, "the confirmation is still on its way"
        await proxy.cut()
        await proxy.mend()
        await rest

    assert Counter(await values(stream, ALL)) == Counter(lines)


async def test_sessions_wait_in_the_spool_until_a_broker_answers(node, stream, config, tmp_path):
    """One that is too large is set aside, and does not hold up those after it."""
    settings = config(stream.configured(kafka={"bootstrap_servers": node.proxied}))
    spool = tmp_path / "spool"
    command = ["publish", "--hook", "--spool", str(spool), "--config", settings]
    hooks = [session_hook(tmp_path, name, size) for name, size in (("s1", 1), ("s2", 2**22), ("s3", 1))]

    for waiting, hook in enumerate(hooks[:2], start=1):
        status, output, errors = await kp_worker(*command, str(hook))
        assert (status, output) == (0, "")
        assert errors.startswith("kafka.bootstrap_servers: ")
        assert errors.endswith(f"; waiting in {spool}: {waiting}\n")
        assert len(errors.splitlines()) == 1

    async with running_proxy(node.proxied, node.behind_proxy):
        status, _, errors = await kp_worker(*command, str(hooks[2]))
    [rejected] = spool.iterdir()
    assert (status, len(errors.splitlines())) == (1, 1)
    assert errors.endswith(f"; kept in {rejected}\n")
    raw = [json.loads(value)["metadata"]["native_id"] for value in await values(stream, 2)]
    assert sorted(raw) == ["s1", "s3"]


def session_hook(folder, name, size):
    """Write a session of Claude Code; return the file of a hook's input that names it."""
    ids = {"sessionId": name, "parentUuid": None}
    lines = [
        {"type": kind, "uuid": kind, "message": {"role": kind, "content": text}} | ids
        for kind, text in (("user", "Fix the tests"), ("assistant", "x" * size))
    ]
    session, hook = folder / f"{name}.jsonl", folder / f"{name}.json"
    session.write_text("\n".join(map(json.dumps, lines)))
    hook.write_text(json.dumps({"hook_event_name": "SessionEnd", "transcript_path": str(session)}))
    return hook


async def test_a_publication_that_is_stopped_says_where_to_go_on(
    node, proxy, stream, lines, config, tmp_path
):
    settings = config(stream.configured(kafka={"bootstrap_servers": node.proxied}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knowledgepulse_worker.cli.entry", "publish", "-", "--config", settings),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    process.stdin.writelines(line + b"\n" for line in lines[:FIRST])
    await process.stdin.drain()
    await values(stream, FIRST)
    await proxy.cut()
    process.stdin.writelines(line + b"\n" for line in lines[FIRST:])
    await process.stdin.drain()
    process.terminate()
    errors = (await process.stderr.read()).decode()
    assert await process.wait() == 143

    assert len(errors.splitlines()) <= 2, errors
    skip = int(re.search(r"continue with --skip (\d+)", errors)[1])
    await proxy.mend()
    file = tmp_path / "all.jsonl"
    file.write_bytes(b"\n".join(lines))
    status, _, errors = await kp_worker("publish", str(file), "--skip", str(skip), "--config", settings)

    assert (status, errors) == (0, f"{ALL - skip} records published to {stream.settings.topics.raw}\n")
    raw = await values(stream, ALL)
    assert set(raw) == set(lines)
    assert 0 < skip <= FIRST, "what came after the line was cut is not confirmed"
    assert len(raw) == FIRST + ALL - skip


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (3_000_000, "3500038 bytes exceed limits.trace_bytes=3000000"),
        (4_000_000, "a record is larger than the topic's max.message.bytes"),
    ],
)
async def test_a_trace_may_be_as_large_as_settings_and_topic_allow(stream, config, tmp_path, limit, reason):
    """More than 1 MiB was refused whatever they allow."""
    await stream.configure_topic(stream.settings.topics.raw, {"max.message.bytes": "3000000"})
    small, large, too_large = (trace_of(size) for size in (10, 2_500_000, 3_500_000))
    traces = [small, large, small, too_large, small, large]
    file = tmp_path / "all.jsonl"
    file.write_bytes(b"\n".join(traces))
    settings = stream.configured(limits={"trace_bytes": limit})
    command = ("publish", str(file), "--config", config(settings))

    status, _, errors = await kp_worker(*command)
    assert status != 0
    assert "record 4 is too large; continue after it with --skip 4\n" in errors
    assert f"{stream.settings.topics.raw}: {reason}\n" in errors
    status, _, errors = await kp_worker(*command, "--skip", "4")
    assert (status, errors) == (0, f"2 records published to {stream.settings.topics.raw}\n")
    assert Counter(await values(stream, 5)) == {small: 3, large: 2}


async def test_a_trace_that_the_topic_refuses_is_set_aside_and_each_other_one_written_once(
    stream, config, tmp_path
):
    """Brokers write what other partitions got behind it, although it was sent with them."""
    await stream.configure_topic(stream.settings.topics.raw, {"max.message.bytes": "20000"})
    traces = [
        json.dumps({"id": f"kp:trace:{number}", "text": "x" * (30_000 if number in (7, 70) else 10)}).encode()
        for number in range(100)
    ]
    Spool(tmp_path / "spool").add(traces)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")

    command = ("publish", "--spool", str(tmp_path / "spool"), str(empty), "--config", config(stream.settings))
    status, _, errors = await kp_worker(*command)

    assert (status, errors.count("; kept in ")) == (1, 2)
    assert Counter(await values(stream, 98)) == Counter(line for line in traces if len(line) < 30_000)


def trace_of(size):
    return json.dumps({"id": f"kp:trace:{size}", "text": "x" * size}).encode()


async def test_a_mistyped_topic_is_not_created(stream, lines):
    """Producing to it would create it, where `auto.create.topics.enable` is on."""
    settings = stream.configured(topics={"raw": f"{stream.settings.topics.raw}x"})

    with pytest.raises(TopicError, match=f"did you mean {stream.settings.topics.raw}\\?"):
        await asyncio.to_thread(publish_lines, lines, TracePublisher(settings))

    async with TopicAdmin(settings.kafka, settings.topics) as admin:
        assert await admin.describe([settings.topics.raw]) == {}


AGENT = """\
import json, sys
from opentelemetry import trace
from knowledgepulse_worker import load_settings
from knowledgepulse_worker.otel import record_traces
exporter = record_traces(load_settings())
tracer = trace.get_tracer("agent")
for line in map(str.strip, sys.stdin):
    with tracer.start_as_current_span("invoke_agent") as root:
        root.set_attribute("gen_ai.operation.name", "invoke_agent")
        with tracer.start_as_current_span("chat") as span:
            said = lambda role: json.dumps([{"role": role, "content": line}])
            span.set_attributes({"gen_ai.operation.name": "chat",
                "gen_ai.input.messages": said("user"), "gen_ai.output.messages": said("assistant")})
    print(exporter.force_flush(int(sys.argv[1])), flush=True)
"""


@asynccontextmanager
async def agent(stream, servers, tmp_path, flush):
    """An instrumented agent with one line for Kafka; it has a run for each line of its input.

    ``flush``: milliseconds that it waits after each; then it says whether the run was published.
    """
    (tmp_path / "agent.py").write_text(AGENT)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(tmp_path / "agent.py"), str(flush)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=os.environ
        | {"KP_KAFKA__BOOTSTRAP_SERVERS": servers, "KP_TOPICS__RAW": stream.settings.topics.raw},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_an_agents_run_is_published_although_the_agent_ends_at_once(node, stream, tmp_path):
    """Its host has to be looked up when Python takes no more work for its threads."""
    servers = node.direct.replace("127.0.0.1", "localhost")
    async with agent(stream, servers, tmp_path, 0) as process:
        await process.communicate(b"Fix it\n")

    (value,) = await values(stream, 1)
    assert json.loads(value)["task"]["objective"] == "Fix it"


async def test_an_outage_while_an_agent_lives_loses_none_of_its_runs(node, proxy, stream, tmp_path):
    async with agent(stream, node.proxied, tmp_path, 2000) as process:
        process.stdin.write(b"before\n")
        await values(stream, 1)
        await process.stdout.readline()
        await proxy.cut()
        process.stdin.write(b"during\n")
        assert await process.stdout.readline() == b"False\n", "not published"
        await proxy.mend()
        process.stdin.write(b"after\n")
        arrived = await values(stream, 3)
        process.stdin.close()
        assert await process.wait() == 0

    objectives = {json.loads(value)["task"]["objective"] for value in arrived}
    assert objectives == {"before", "during", "after"}
