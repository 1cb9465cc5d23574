"""What a program in a group serves."""

import json
from types import SimpleNamespace

import aiohttp
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.observe.metric_registry import CommandMetrics
from knowledgepulse_worker.tools.common.group_program import _pages
from support import metrics_page as page
from support.served import served


async def test_probe_and_metrics_say_what_a_program_waits_for():
    """No partition was read, without a word, while a stranger held a position back."""
    reason = "not read yet: spans/0; OffsetFetch to spans/0: UNSTABLE_OFFSET_COMMIT (88)"
    wait = Wait("OffsetFetch", "spans/0", error="UNSTABLE_OFFSET_COMMIT (88)")
    session = SimpleNamespace(not_ready=[reason], waits={wait: 7.0})
    metrics = CommandMetrics(CollectorRegistry())

    async with served(_pages(metrics, session)) as url, aiohttp.ClientSession(url) as client:
        async with client.get("/readyz") as answer:
            status, told = answer.status, json.loads(await answer.read())["reasons"]
        async with client.get("/metrics") as answer:
            shown = await answer.text()

    assert (status, told) == (503, [reason])
    labels = {"request": "OffsetFetch", "error": "UNSTABLE_OFFSET_COMMIT (88)"}
    assert page.value(shown, "kp_waiting_seconds", **labels) == 7
