"""What a program in a group serves."""

import json
from types import SimpleNamespace

import aiohttp
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.throttle import Throttles
from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.observe.metric_registry import CommandMetrics
from knowledgepulse_worker.tools.common.group_program import _pages
from knowledgepulse_worker.tools.common.session_diagnosis import SessionDiagnosis
from support import metrics_page as page
from support.clocks import Clock
from support.served import served


class Waiting:
    """What a client waits for."""

    def __init__(self, *waits):
        self.waits = waits

    def current(self, _requests):
        return list(self.waits)


def session_of(*reading, not_ready=(), waits=None, by_brokers=False):
    """Return a session whose client waits so."""
    group = SimpleNamespace(is_assigned_by_brokers=by_brokers)
    member = SimpleNamespace(waits=Waiting(*reading), answered_at=0.0, is_member=False, group=group)
    publisher = SimpleNamespace(waits=Waiting())
    return SimpleNamespace(member=member, publisher=publisher, not_ready=list(not_ready), waits=waits or {})


async def answers(diagnosis):
    """Return what the probe, the status page and the metrics say."""
    metrics = CommandMetrics(CollectorRegistry())
    async with served(_pages(metrics, diagnosis, None)) as url, aiohttp.ClientSession(url) as client:
        async with client.get("/readyz") as answer:
            probe = answer.status, json.loads(await answer.read())
        async with client.get("/") as answer:
            status = answer.status, await answer.text()
        async with client.get("/metrics") as answer:
            return probe, status, await answer.text()


async def test_probe_and_metrics_say_what_a_program_waits_for():
    """No partition was read, without a word, while a stranger held a position back."""
    reason = "not read yet: spans/0; OffsetFetch to spans/0: UNSTABLE_OFFSET_COMMIT (88)"
    wait = Wait("OffsetFetch", "spans/0", error="UNSTABLE_OFFSET_COMMIT (88)")
    diagnosis = SessionDiagnosis(session_of(not_ready=[reason], waits={wait: 7.0}), Throttles(), 10.0)

    (status, told), _, shown = await answers(diagnosis)

    assert (status, told["reasons"], told["verdict"]["state"]) == (503, [reason], "starting")
    labels = {"request": "OffsetFetch", "error": "UNSTABLE_OFFSET_COMMIT (88)"}
    assert page.value(shown, "kp_waiting_seconds", **labels) == 7


async def test_a_program_says_in_an_outage_what_a_worker_says_and_stays_ready():
    """Its probe said "ready" and no more, and its page was a 404."""
    gone = Wait("connection", "<b>:9092", problem="Connection refused")
    clock, throttles = Clock(), Throttles()
    diagnosis = SessionDiagnosis(session_of(gone, by_brokers=True), throttles, 10.0, clock)
    throttles.producer.note(42.0)
    await diagnosis.observe()
    clock.now += 6

    (status, told), (found, body), shown = await answers(diagnosis)

    states = [told["verdict"]["state"], *(other["state"] for other in told["verdict"]["others"])]
    assert (status, states) == (200, ["waiting_for_kafka", "foreign_member", "throttled"])
    assert told["verdict"]["text"] == (
        "Waiting for Kafka: no answer from partition leaders for 6 s; "
        "connection to <b>:9092: Connection refused"
    )
    assert (found, "&lt;b&gt;:9092" in body, "Foreign member: " in body) == (200, True, True)
    assert page.value(shown, "kp_waiting_seconds", request="connection") == 0


async def test_a_program_that_asks_for_nothing_waits_for_nobody():
    """It waits for its backend, and leaders that it does not ask are not silent."""
    clock = Clock()
    diagnosis = SessionDiagnosis(session_of(), Throttles(), 10.0, clock)
    for _ in range(3):
        await diagnosis.observe()
        clock.now += 60

    assert str(diagnosis.verdict) == "Healthy"
