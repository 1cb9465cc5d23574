"""What becomes of each trace: every answer that a registry or what stands before it may give."""

from __future__ import annotations

import itertools
from base64 import b64encode

import pytest

from knowledgepulse_curator.contributions.contribution_metrics import ContributionMetrics
from knowledgepulse_curator.contributions.registry_client import RegistryClient
from knowledgepulse_curator.contributions.send_contributions import LONGEST_WAIT, RequestRetrier, Sender
from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_worker.errors import AccessError, SettingsError
from knowledgepulse_worker.settings import RegistrySettings
from knowledgepulse_worker.tools.common import base64_headers
from support.planted import KEY
from support.registry import Registry, hanging_up, never, register, saying, serving

AGENT = "kp:agent:tests"


class Clock:
    """Time that passes in sleeps only."""

    def __init__(self):
        self.now = 1e6
        self.slept = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


async def no_sleep(_seconds):
    """The pace is tested with the client."""


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def metrics():
    return ContributionMetrics()


@pytest.fixture
async def server():
    registry = Registry()
    async with serving(registry) as url:
        registry.settings = RegistrySettings(url=url, agent_id=AGENT, api_key=await register(url, AGENT))
        yield registry


@pytest.fixture
async def send(server, clock, metrics):
    async with RegistryClient(server.settings, no_sleep) as client:
        yield Sender(server.settings, client, RequestRetrier(clock.sleep, metrics, clock)).send


DATED = {"Date": "Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2015 07:30:00 GMT"}


@pytest.mark.parametrize(
    ("answers", "reason", "waits"),
    [
        ([saying(500)], "server_error", (0.7, 1)),
        ([saying(503, **{"Retry-After": "7"})], "server_error", (7, 7)),
        ([saying(408)], "server_error", (0.7, 1)),
        ([saying(201)], "unreadable", (0.7, 1)),
        ([saying(200, {"data": {"id": "kp:trace:another"}})], "unreadable", (0.7, 1)),
        ([saying(201, [])], "unreadable", (0.7, 1)),
        ([hanging_up], "closed", (0.7, 1)),
        ([saying(429)], "limited", (60, 60)),
        ([saying(429, **{"Retry-After": "9"})], "limited", (9, 9)),
        ([saying(429, **{"Retry-After": "soon"})], "limited", (60, 60)),
        ([saying(429, **{"Retry-After": "-5"})], "limited", (60, 60)),
        ([saying(429, **{"Retry-After": "9" * 30})], "limited", (3600, 3600)),
        ([saying(429, **DATED)], "limited", (120, 120)),  # whatever our own clock says
        ([saying(500)] * 9, "server_error", (LONGEST_WAIT * 0.7, LONGEST_WAIT)),
        (
            [saying(429, **{"Retry-After": "9"})] * 2,
            "limited",
            (3590, 3600),
        ),  # the third would revoke the key
    ],
)
async def test_what_may_pass_is_asked_again_but_not_at_once(
    server, send, clock, metrics, document, record, answers, reason, waits
):
    server.script.extend(answers)

    sent = await send(record(document()))

    assert (sent.result, sent.status) == ("accepted", 201)
    assert metrics.counts() == {reason: len(answers)}
    assert len(clock.slept) == len(answers)
    assert waits[0] <= clock.slept[-1] <= waits[1]
    assert server.posts == {sent.trace_id: [sent.idempotency_key]}


async def test_a_registry_that_does_not_answer_in_time_is_asked_again(
    server, clock, metrics, document, record
):
    server.script.append(never)
    impatient = server.settings.model_copy(update={"timeout": 0.3})

    async with RegistryClient(impatient, no_sleep) as client:
        sent = await Sender(impatient, client, RequestRetrier(clock.sleep, metrics, clock)).send(
            record(document())
        )

    assert metrics.counts().keys() == {"timeout"}
    assert server.posts == {sent.trace_id: [sent.idempotency_key]}


async def test_an_answer_that_was_lost_is_not_asked_for_twice(server, send, document, record):
    """The registry has the trace, and its answer never came."""

    async def create_and_hang_up(request):
        await server._create(request)
        return await hanging_up(request)

    server.script.append(create_and_hang_up)
    sent = await send(record(document()))

    assert (sent.result, sent.status) == ("duplicate", 200)
    assert server.posts == {sent.trace_id: [sent.idempotency_key]}
    assert (await send(record(server.units[sent.trace_id]))).result == "duplicate"


@pytest.mark.parametrize(
    ("answer", "result", "message"),
    [
        (saying(409, {"error": "Exists"}), "duplicate", "Exists"),
        (saying(400, {"error": "Invalid", "issues": [{"path": "a.b", "message": "Too long"}]}), "refused",
         "Invalid; a.b: Too long"),
        (saying(422, {"error": f"key {KEY}: by alice@example.com"}), "refused",
         "key [REDACTED:api_key]: by [REDACTED:email]"),
        (saying(400), "refused", ""),
        (saying(422, []), "refused", ""),
        (saying(413), "too_large", ""),
        (saying(413, {"error": "x" * 9999}), "too_large", "x" * 500),
    ],
)  # fmt: skip
async def test_what_is_said_for_good_is_not_asked_again(
    server, send, metrics, document, record, answer, result, message
):
    server.script.append(answer)
    sent = await send(record(document()))
    assert (sent.result, sent.message, sent.source) == (result, message, "raw-traces/0/7")
    assert (server.units, metrics.counts()) == ({}, {})


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (saying(401, {"error": "Authentication required"}), AccessError),
        (saying(403), AccessError),
        (saying(429, **{"X-RateLimit-Limit": "0"}), AccessError),
        (saying(302, Location="https://example.org"), SettingsError),
        (saying(405), SettingsError),
    ],
)
async def test_what_no_trace_is_to_blame_for_ends_the_command(server, send, document, record, answer, error):
    """So the offset stays, and nothing is lost."""
    server.script.append(answer)
    with pytest.raises(error, match=r"^registry\.(api_key|url): http"):
        await send(record(document()))


async def test_a_registry_that_is_away_is_waited_for(server, clock, metrics, document, record):
    away = server.settings.model_copy(update={"url": "http://127.0.0.1:1"})
    waits = itertools.count()

    async def sleep(seconds):
        await clock.sleep(seconds)
        if next(waits) == 20:
            raise TimeoutError

    async with RegistryClient(away, no_sleep) as client:
        with pytest.raises(TimeoutError):
            await Sender(away, client, RequestRetrier(sleep, metrics, clock)).send(record(document()))
    assert metrics.counts() == {"unreachable": 21}
    assert sum(clock.slept) > 15 * LONGEST_WAIT * 0.75


@pytest.mark.parametrize(
    ("metadata", "value", "result"),
    [
        ({"visibility": "private"}, None, "visibility"),
        ({"visibility": "org"}, None, "visibility"),
        ({"privacy_level": "private"}, None, "privacy_level"),
        ({"framework": "by alice@example.com"}, None, "not_clean"),
        ({"created_at": "0001-01-01T00:00:00+14:00"}, None, "invalid"),
        ({}, b"{}", "foreign"),
    ],
)
async def test_what_may_not_leave_is_not_even_looked_up(
    server, send, document, record, metadata, value, result
):
    server.revoke(AGENT)  # so that any question would end the test
    sent = await send(record(value or document(**metadata)))
    assert (sent.result, sent.status) == (result, 0)
    assert server.units == {}


NOT_REDACTED = [("kp-source", b"raw-traces/0/7"), ("kp-policy", b"a"), ("kp-redaction-error", b"raised")]


async def test_what_could_not_be_redacted_is_told_apart(send, record):
    stands_for = record(None)
    stands_for.headers = NOT_REDACTED
    assert (await send(stands_for)).result == "not_redacted"


async def test_copies_with_base64_headers_are_not_sent_and_told(send, record, document, monkeypatch, caplog):
    monkeypatch.setattr(base64_headers, "_logged", LogInterval())
    scored, stands_for = record(document()), record(None)
    stands_for.headers = NOT_REDACTED
    for copy in (scored, stands_for):
        copy.headers = [(name, b64encode(value)) for name, value in copy.headers]
        sent = await send(copy)
        assert (sent.result, sent.source, sent.status) == ("foreign", "contribute/0/3", 0)

    assert [message.split(": set ")[0] for message in caplog.messages] == [
        "contribute: the kp-* headers of skipped records are base64"
    ]
