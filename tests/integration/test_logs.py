"""A real worker's log: what operators need, and never an agent's content."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from support import metrics_page as page
from support.streams import Message

pytestmark = pytest.mark.integration

MARK = "confidential"
KINDS = (
    "embedding with",
    "a text that fills the window takes",
    "scoring",
    "owns",
    "recovered the ledgers",
    "stopping",
)
# Their lines tell how quickly brokers answer: many, on a busy machine.
VERDICTS_AND_CLIENT = ("knowledgepulse_worker.stream.diagnosis", "aiokafka")


def lines(worker):
    """Return the worker's log; fail unless every line is JSON."""
    return [json.loads(line) for line in worker.log().splitlines()]


async def test_logs_a_line_per_start_rebalance_and_recovery_but_none_per_record(make_stream, real_traces):
    stream = await make_stream(2)
    await stream.publish(Message(line, partition=n % 2) for n, line in enumerate(real_traces[:40]))
    async with stream.worker() as worker:
        await worker.published(40)
        async with stream.worker() as other:
            await other.owns(1)
            await worker.owns(1)
            await other.stop()
        await worker.owns(2)
        await worker.logged("recovered the ledgers of 2 partitions in")
        await stream.publish([Message(real_traces[40], partition=1)])
        await worker.published(41)
        rebalances = page.value(await worker.metrics(), "kp_rebalances_total")
        assert await worker.stop() == 0

    logged = [line for line in lines(worker) if not line["logger"].startswith(VERDICTS_AND_CLIENT)]
    messages = [line["message"] for line in logged]
    kinds = Counter(kind for kind in KINDS for message in messages if message.startswith(kind))
    assert kinds.total() == len(messages), [m for m in messages if not m.startswith(KINDS)]
    assert {line["level"] for line in logged} == {"INFO"}
    assert kinds["owns"] == rebalances
    assert 1 <= kinds["recovered the ledgers"] <= kinds["owns"]
    assert (kinds["embedding with"], kinds["scoring"], kinds["stopping"]) == (1, 1, 1)
    recoveries = [message for message in messages if message.startswith("recovered")]
    assert re.fullmatch(r"recovered the ledgers of 2 partitions in \d+\.\d s: 40 records", recoveries[-1])


async def test_content_is_not_logged_even_at_debug_when_a_send_fails(make_stream, real_traces):
    """The dead letter is rejected, even truncated; no component that has the record may log it."""
    stream = await make_stream(1, log={"level": "DEBUG"})
    dead_letter = stream.settings.topics.dead_letter
    traces = [json.loads(line) for line in real_traces[:10]]
    for trace in traces:
        trace["id"] = f"kp:trace:{MARK}"
        trace["task"]["objective"] = trace["steps"][0]["content"] = trace[MARK] = MARK
    invalid = {**traces[0], "steps": MARK, "outcome": {MARK: MARK}}
    values = [json.dumps(trace).encode() for trace in (*traces, invalid)]
    async with stream.worker() as worker:
        await worker.owns(1)
        await stream.configure_topic(dead_letter, {"max.message.bytes": "100"})  # a start would refuse it
        await stream.publish(
            Message(value, MARK.encode(), headers=[(MARK, MARK.encode()), ("traceparent", MARK.encode())])
            for value in (*values, MARK.encode())
        )
        await worker.logged("the worker ended with status 1; starting it again")

    logged = lines(worker)
    assert MARK not in worker.log()
    failures = [line["message"] for line in logged if line["logger"] == "knowledgepulse_worker.logs"]
    assert failures
    assert all(message.startswith(f"{dead_letter}: ") for message in failures)
