"""Contributed traces sent to a registry: each is there once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from knowledgepulse_worker.kafka.worker_topics import contributions_topic_name
from knowledgepulse_worker.redaction.sdk import clean_id
from knowledgepulse_worker.tools.demo.processes import free_ports
from support import metrics_page as page
from support.commands import kp_worker
from support.registry import Registry, register, saying, serving
from support.streams import Message, headers_of

pytestmark = pytest.mark.integration

LIMIT = 120
AGENT = "kp:agent:tests"
ALICES = "kp:trace:alice@example.com"
CLEAN = "knowledgepulse_worker.redaction.sdk:clean"


@pytest.fixture
async def contributed(make_stream, real_traces):
    """Return a stream with redacted copies of 30 contributed traces, of which 3 are private."""
    stream = await make_stream(
        2,
        policy={"threshold": 0},
        topics={"redacted": f"redacted-{free_ports(1)[0]}"},
        redaction={"function": CLEAN},
    )
    values = [json.loads(line) for line in real_traces[:30]]
    for number, trace in enumerate(values):
        trace["metadata"]["visibility"] = "private" if number % 10 == 0 else "network"
        trace["outcome"]["result_summary"] += " Ask alice@example.com."
    values[1]["id"] = ALICES
    messages = [Message(json.dumps(value).encode(), partition=n % 2) for n, value in enumerate(values)]
    await stream.scored(await stream.publish(messages))
    return stream


async def contributions(stream):
    records = await stream.read(contributions_topic_name(stream.settings.kafka.group))
    return [json.loads(record.value) for record in records]


@pytest.mark.timeout(600)  # eight processes, one after another
async def test_each_trace_is_there_once_although_sender_and_registry_are_killed(contributed, config):
    """The offset is committed with the answer, and the registry is asked before it is sent to."""
    registry, port = Registry(), free_ports(1)[0]
    registry.script.append(saying(400, {"error": "Invalid KnowledgeUnit"}))
    settings = contributed.configured(registry={"url": f"http://127.0.0.1:{port}", "agent_id": AGENT})
    async with serving(registry, port) as url:
        key = {"KP_REGISTRY__API_KEY": await register(url, AGENT)}

    def sender():
        return contributed.worker(settings, environment=key, command="contributions send")

    for registry.silent_at in (3, 9, 15):
        async with serving(registry, port), sender():
            while len(registry.units) < registry.silent_at:
                await asyncio.sleep(0.01)
    registry.silent_at = None
    async with sender() as command:  # and now the registry is away
        await command.logged("unreachable: ")
        async with serving(registry, port):
            while page.value(await command.metrics(), "kp_contributions_lag_records") != 0 or (
                len(await contributions(contributed)) < 30
            ):
                await asyncio.sleep(0.1)
            assert await command.stop() == 0, command.log()
            log = command.log()

    assert " accepted" in log
    assert key["KP_REGISTRY__API_KEY"] not in log
    found = await contributions(contributed)
    for name in ("trace_id", "source"):
        assert len({contribution[name] for contribution in found}) == 30
    results = [contribution["result"] for contribution in found]
    assert {name: results.count(name) for name in ("visibility", "refused")} == {
        "visibility": 3,
        "refused": 1,
    }
    assert set(results) <= {"accepted", "duplicate", "visibility", "refused"}
    assert {len(posts) for posts in registry.posts.values()} == {1}
    assert (len(registry.units), registry.refusals) == (26, 0)
    assert "alice" not in json.dumps(registry.units)
    policies = {
        headers_of(record)["kp-policy"] for record in await contributed.read(settings.topics.redacted)
    }
    for unit in registry.units.values():
        facts = [relationship["fact"] for relationship in unit["knowledge_graph_delta"]["relationships"]]
        assert {f"kp-policy {policy}" for policy in policies} & {*facts}

    async with serving(registry, port):
        file = config(settings)
        gone = next(unit for unit in registry.units if unit != clean_id(ALICES))
        status, shown, _ = await kp_worker(
            "contributions", "delete", gone, "kp:trace:never", "--config", file, **key
        )
        assert (status, shown) == (0, f"{gone}: deleted\nkp:trace:never: not in the registry\n")
        assert gone not in registry.units
        status, shown, errors = await kp_worker("traces", "show", gone, "--config", file)
        assert status == 0, errors
        sent, deleted = (line.split(": ")[1] for line in shown.splitlines()[-2:])
        assert sent.split(" ")[0] in {"accepted", "duplicate"}
        assert deleted.startswith("deleted kp:trace:")
        _, shown, _ = await kp_worker("traces", "show", ALICES, "--config", file)
        assert f" {clean_id(ALICES)} at {settings.registry.url}" in shown.splitlines()[-1]

    async with contributed.worker(settings) as worker:
        await worker.owns(2)
        while json.loads((await worker.get("/api/status"))[1])["registry"] != Counter([*results, "deleted"]):
            await asyncio.sleep(0.1)
