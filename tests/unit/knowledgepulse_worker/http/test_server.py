"""The worker's port over real connections; the child's pages are a fake."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import time
from contextlib import suppress

import aiohttp
import pytest
from aiohttp import web

from knowledgepulse_kafka.log_interval import LogInterval
from knowledgepulse_worker.http import server as worker_web
from knowledgepulse_worker.http import unreadable_requests
from knowledgepulse_worker.http.child_connections import HandedOverSite
from knowledgepulse_worker.http.pages import PAGE, PAGE_HEADERS
from knowledgepulse_worker.http.server import serving
from knowledgepulse_worker.http.unreadable_requests import UnreadableRequests
from knowledgepulse_worker.settings import WebSettings
from knowledgepulse_worker.tools.demo.processes import free_ports
from knowledgepulse_worker.verdict import State, Verdict

HEALTHY = json.loads(json.dumps(Verdict.of(()).as_dict(None)))


class Child:
    """Serves the pages, and records the requests."""

    def __init__(self):
        self.asked = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.body = b"page"
        self.status = 200

    async def page(self, request):
        self.asked.append({name: request.headers.get(name) for name in ("Accept", "Kp-Content")})
        await self.gate.wait()
        headers = {"Content-Type": "text/x-page", "Content-Security-Policy": "default-src 'none'"}
        return web.Response(status=self.status, body=self.body, headers=headers)


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(worker_web, "ANSWER_LIMIT", 0.1)


@pytest.fixture
async def front():
    """The port in front of a fake child."""
    child, settings = Child(), WebSettings(port=free_ports(1)[0])
    app = web.Application()
    app.router.add_get("/{path:.*}", child.page)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    async with serving(settings, "workers") as port:
        await HandedOverSite(runner, port.socket_of_next_child().detach()).start()
        port.child, port.settings, port.runner = child, settings, runner
        port.with_child([], [{"state": "healthy"}])
        yield port
    await runner.cleanup()


async def get(port, path, method="GET", **headers):
    url = f"http://127.0.0.1:{port.settings.port}{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers) as answer:
        return answer.status, answer.headers, await answer.text()


async def raw(port, sent):
    """Return the raw response to raw bytes, once the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.settings.port)
    writer.write(sent)
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


async def test_the_child_s_answer_is_passed_on_unchanged(front):
    status, headers, body = await get(front, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert (status, body) == (200, "page")
    assert headers["Content-Type"] == "text/x-page"
    assert headers["Content-Security-Policy"] == "default-src 'none'"
    assert len(headers.getall("Date")) == len(headers.getall("Content-Length")) == 1
    assert front.child.asked == [{"Accept": "application/openmetrics-text", "Kp-Content": "shown"}]


@pytest.mark.parametrize("path", ["/", "/metrics", "/livez", "/readyz", "/api/status", "/nowhere"])
@pytest.mark.parametrize("has_child", [True, False])
async def test_no_response_is_kept_or_guessed_at_or_names_versions(front, path, has_child):
    if not has_child:
        front.without_child(State.STARTING, "the worker is starting")
    _, headers, _ = await get(front, path)

    assert headers["Server"] == "kp-worker"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "sent",
    [
        b"no request\r\n\r\n",
        b"GET /\xff HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: %s\r\n\r\n" % (b"a" * 10_000),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nExpect: the impossible\r\nConnection: close\r\n\r\n",
    ],
)
async def test_no_answer_to_a_request_that_cannot_be_read_names_versions(front, sent):
    """aiohttp gives it by itself."""
    answer = await raw(front, sent)

    assert answer.startswith(b"HTTP/1.")
    assert b"Server: kp-worker\r\n" in answer
    assert not re.search(rb"aiohttp|Python/", answer)


@pytest.mark.parametrize(
    "sent",
    [
        b"Host: evil.example\r\n",
        b"Host: localhost\xff\r\n",
        b"Host: localhost\r\nX-Forwarded-For: 192.0.2.7\r\n",
        b"Host: localhost\r\nVia: 1.1 proxy\r\n",
        b"Host: evil.example\r\nKp-Content: shown\r\n",
        b"",
    ],
)
async def test_the_child_is_asked_for_content_only_by_a_loopback_name_and_without_a_proxy(front, sent):
    answer = await raw(front, b"GET /metrics HTTP/1.0\r\n" + sent + b"\r\n")
    assert b"200 OK" in answer
    assert front.child.asked == [{"Accept": "*/*", "Kp-Content": None}]


async def test_many_readers_cost_the_child_one_answer_in_each_interval(front, monkeypatch):
    """Eight readers of /metrics took eleven twelfths of the scoring."""
    began = time.monotonic()
    asking = [asyncio.create_task(get(front, "/metrics")) for _ in range(30)]
    assert {(await request)[0] for request in asking} == {200}

    before, intervals = len(front.child.asked), (time.monotonic() - began) / worker_web.RENDER_INTERVAL
    assert before <= 2 + intervals  # the first to arrive does not wait for the others
    monkeypatch.setattr(worker_web, "RENDER_INTERVAL", 0.0)
    await get(front, "/metrics")
    assert len(front.child.asked) == before + 1


@pytest.mark.slow
async def test_an_answer_is_never_older_than_its_request(front):
    front.child.gate.clear()
    first = asyncio.create_task(get(front, "/metrics"))
    async with asyncio.timeout(60):
        while not front.child.asked:
            await asyncio.sleep(0.01)
    second = asyncio.create_task(get(front, "/metrics"))
    await asyncio.sleep(0)
    front.child.gate.set()
    await asyncio.gather(first, second)

    assert len(front.child.asked) == 2


async def test_the_page_itself_needs_no_child(front):
    status, headers, body = await get(front, "/")
    assert (status, body.encode()) == (200, PAGE)
    assert headers["Content-Security-Policy"] == PAGE_HEADERS["Content-Security-Policy"]
    assert front.child.asked == []


async def test_no_other_path_reaches_the_child(front):
    for path in ("/router/", "/metrics/", "//evil.example/metrics", "/api/status/../x"):
        assert (await get(front, path))[0] == 404
    assert (await get(front, "/metrics", method="POST"))[0] == 405
    assert front.child.asked == []


async def test_a_head_request_is_answered_without_a_body(front):
    status, headers, body = await get(front, "/", method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(len(PAGE)), "")


async def test_the_port_answers_for_a_child_that_is_gone(front):
    await front.runner.cleanup()
    front.without_child(State.STARTING, "it is gone")
    assert (await get(front, "/"))[0] == 200
    metrics = await get(front, "/metrics")
    assert metrics[0] == 200
    assert 'kp_state{state="starting",group="workers"} 1.0' in metrics[2]
    assert metrics[2].count(" 1.0\n") == 1
    assert (await get(front, "/livez"))[::2] == (200, '{"live": true}')
    status, headers, body = await get(front, "/readyz")
    answer = json.loads(body)
    verdict = answer.pop("verdict")
    assert (status, answer) == (503, {"ready": False, "reasons": ["it is gone"]})
    assert (verdict["state"], verdict["text"]) == ("starting", "Starting: it is gone")
    assert json.loads((await get(front, "/api/status"))[2]) == {"verdict": verdict}
    assert headers["Cache-Control"] == "no-store"


async def test_the_last_data_of_a_child_survives_it_although_nobody_looked(front, monkeypatch):
    """Each restart emptied the page, in a crash loop for ever."""
    last = {"at": 7, "before_restart": None, "outcomes": {"last_output": 6}, "scores": {"domains": {}}}
    front.child.body = json.dumps({"verdict": HEALTHY} | last).encode()
    monkeypatch.setattr(worker_web, "KEEP_INTERVAL", 0.0)
    monkeypatch.setattr(worker_web, "RENDER_INTERVAL", 0.0)
    keeping = asyncio.create_task(front.keep_data())
    async with asyncio.timeout(60):
        while len(front.child.asked) < 3:  # with content, without, and again
            await asyncio.sleep(0.01)

    front.without_child(State.STARTING, "it is gone")
    keeping.cancel()

    status, _, body = await get(front, "/api/status")
    verdict = json.loads((await get(front, "/readyz"))[2])["verdict"]
    assert (status, json.loads(body)) == (503, last | {"verdict": verdict})


async def test_an_error_of_the_child_is_passed_on_and_ends_with_it(front):
    """Kept as what the page showed, it would have ended the parent with the child."""
    front.child.status, front.child.body = 500, b"500 Internal Server Error"
    front.with_child([], [{"state": "healthy"}])
    status, _, body = await get(front, "/api/status")
    assert (status, body) == (500, "500 Internal Server Error")

    front.without_child(State.STARTING, "it is gone")

    assert json.loads((await get(front, "/api/status"))[2]).keys() == {"verdict"}


async def test_the_verdict_on_a_child_that_is_gone_has_the_address_of_the_runbook():
    """A page that was opened meanwhile knows no settings."""
    settings = WebSettings(port=free_ports(1)[0], runbook="https://example.com/runbook")
    async with serving(settings, "workers") as port:
        port.settings = settings
        port.without_child(State.WAITING_FOR_KAFKA, "it is gone")
        verdict = json.loads((await get(port, "/api/status"))[2])["verdict"]
        assert verdict["runbook_url"] == "https://example.com/runbook#kpwaiting"
        port.without_child(State.STOPPING, "it is stopping")
        assert json.loads((await get(port, "/api/status"))[2])["verdict"]["runbook_url"] is None


async def test_the_port_does_not_wait_for_a_hung_child(hasty, front):
    front.child.gate.clear()
    status, _, body = await get(front, "/api/status")
    assert (status, json.loads(body)) == (503, {"verdict": HEALTHY})
    assert (await get(front, "/readyz"))[0] == 200


async def test_an_open_request_does_not_delay_the_shutdown():
    settings = WebSettings(port=free_ports(1)[0])
    async with serving(settings, "workers") as port:
        port.settings = settings
        port.with_child([], [{"state": "healthy"}])
        with port.socket_of_next_child() as inherited:
            asking = asyncio.create_task(get(port, "/metrics"))
            _, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, inherited, 1, 1)
    with pytest.raises(aiohttp.ClientError):
        await asking
    os.close(*descriptors)


async def test_a_request_that_no_child_takes_is_answered_without_it(front):
    """The child of before is gone, and the next one has not come to take connections, or never will."""
    front.socket_of_next_child().close()

    status, _, body = await get(front, "/api/status")

    assert (status, json.loads(body)["verdict"]) == (503, HEALTHY)


@pytest.mark.slow
async def test_the_next_child_is_asked_by_the_same_port(front):
    await get(front, "/metrics")
    await front.runner.cleanup()
    await front.runner.setup()
    await HandedOverSite(front.runner, front.socket_of_next_child().detach()).start()

    assert (await get(front, "/metrics"))[0] == 200


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
)
async def test_a_connection_without_a_complete_request_is_closed(monkeypatch, sent):
    """Each uses a descriptor, and without free descriptors a worker cannot reach a broker."""
    monkeypatch.setattr(worker_web, "IDLE_LIMIT", 0.2)
    settings = WebSettings(port=free_ports(1)[0])
    async with serving(settings, "workers") as port:
        port.settings = settings
        assert await raw(port, sent) == b""


async def test_requests_that_cannot_be_read_are_counted_in_one_line(front, monkeypatch, caplog):
    """Each was a traceback in the log, and a client can send thousands of them in a second."""
    now = 0.0
    counting = UnreadableRequests(LogInterval(lambda: now))
    monkeypatch.setattr(unreadable_requests.requests, "filters", [counting])
    chunked = b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n"

    async def send(rest):
        reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
        async with asyncio.timeout(60):
            writer.write(b"POST /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + rest)
            said = await reader.read()
        writer.close()
        return said

    assert (await send(b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz")).startswith(b"HTTP/1.1 405")
    for _ in range(3):
        await send(chunked)
    now = 61.0
    await send(chunked)
    assert caplog.messages == [
        "requests to the web port that could not be read: 1, the last one with BadHttpMessage",
        "requests to the web port that could not be read: 3, the last one with BadHttpMessage",
    ]


async def test_a_probe_is_answered_however_many_connections_wait(front, monkeypatch, caplog):
    """1,200 half-open ones would exhaust the descriptors of a process limited to 1,024."""
    monkeypatch.setattr(worker_web, "MAX_CONNECTIONS", 3)
    port = front.settings.port
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]

    async with asyncio.timeout(60):
        for reader, _ in connections[:3]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert (await get(front, "/livez"))[0] == 200
        reader, writer = connections[-1]
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
    for _, writer in connections:
        writer.close()
    assert caplog.messages == ["more than 3 connections to the web port; closing the oldest"]
