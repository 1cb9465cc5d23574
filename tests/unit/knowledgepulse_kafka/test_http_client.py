"""The client of other people's servers: where it goes, how much it reads, and what it shows."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import asynccontextmanager

import aiohttp
import pytest
from yarl import URL

from knowledgepulse_kafka.http_client import (
    HttpAnswer,
    bearer,
    reason,
    request,
    retry_after,
    shortened_answer,
)
from knowledgepulse_kafka.safe_text import HIDDEN
from knowledgepulse_worker.tools.demo.processes import LOOPBACK

LIMIT = 100_000


@asynccontextmanager
async def serving(head, body, *, endless=False):
    """Serve bytes, again and again if endless; yield the address and the requests."""
    asked = []

    async def answer(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(head + b"\r\n\r\n" + body)
        try:
            while endless:
                writer.write(body)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    async with server:
        yield URL(f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/"), asked


async def ask(url):
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        return await request(session, "GET", url, max_bytes=LIMIT)


async def test_a_redirect_is_an_answer():
    async with serving(b"HTTP/1.1 200 OK", b"") as (other, asked):
        head = f"HTTP/1.1 307 Elsewhere\r\nLocation: {other}\r\nContent-Length: 0"
        async with serving(head.encode(), b"") as (url, _):
            assert (await ask(url)).status == 307
    assert asked == []


async def test_an_endless_answer_is_cut_off():
    async with serving(b"HTTP/1.1 200 OK", b"x" * 65_536, endless=True) as (url, _):
        answer = await ask(url)
    assert (answer.body, answer.is_cut) == (b"x" * LIMIT, True)
    with pytest.raises(ValueError, match="it is larger than 100,000 bytes"):
        answer.json()


async def test_an_answer_as_large_as_the_limit_is_whole():
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {LIMIT}"
    async with serving(head.encode(), b"x" * LIMIT) as (url, _):
        assert not (await ask(url)).is_cut


async def test_a_compressed_answer_is_cut_off():
    body = gzip.compress(bytes(50_000_000))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}"
    async with serving(head.encode(), body) as (url, _):
        assert (await ask(url)).body == bytes(LIMIT)


async def test_an_answer_that_is_no_http_is_an_error_without_its_text():
    async with serving(b"SECRET", b"SECRET") as (url, _):
        with pytest.raises(aiohttp.ClientError) as raised:
            await ask(url)
    assert "SECRET" not in reason(raised.value)


@pytest.mark.parametrize("body", [b"\xff", b'"\xff"', b"[" * 200_000, b"1" * 5000, b"{", b""])
def test_what_is_no_json_is_a_value_error(body):
    with pytest.raises(ValueError, match=r"."):
        HttpAnswer(200, {}, "application/json", body).json()


def test_an_excerpt_is_one_line_that_controls_no_terminal():
    answer = HttpAnswer(400, {}, "text/plain", b"line\nforged\x1b[2J")

    assert answer.excerpt([]) == "line\\nforged\\x1b[2J"


def test_an_excerpt_is_short_and_has_no_secret():
    answer = HttpAnswer(400, {}, "text/plain", b"refused: Bearer SECRET \xff" + b"x" * 1000)
    assert answer.excerpt(["SECRET", ""]) == "refused: Bearer *** \ufffd" + "x" * 179


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("0", 1),
        ("9" * 5000, 3600),
        ("Wed, 25 Nov 2026 12:00:30 GMT", 30),
        ("Wed, 25 Nov 9999 12:00:30 GMT", 3600),
        ("-5", None),
        ("\u0663", None),
        ("soon", None),
        ("", None),
    ],
)
def test_a_server_says_when_to_ask_again_but_not_that_we_wait_for_ever(header, seconds):
    assert retry_after({"Retry-After": header, "Date": "Wed, 25 Nov 2026 12:00:00 GMT"}) == seconds


@pytest.mark.parametrize("key", ["k\nX: y", "k\u00e9", "k\0"])
def test_a_key_that_no_header_takes_is_refused_without_showing_it(key):
    with pytest.raises(ValueError, match=r"^has characters that HTTP headers do not allow$"):
        bearer(key)


@pytest.mark.parametrize(
    "echo",
    [
        "you sent Authorization: Basic dXNlcjpwYSIncw==",
        '{"authorization": "Basic dXNlcjpwYSIncw==", "url": "http://user:pa%22%27s@host"}',
        "password pa\"'s",
        '{"password": "pa\\"\'s"}',
        "authorization: bearer another.token_of-ours",
    ],
)
def test_an_answer_that_repeats_the_request_shows_no_secret_in_any_form(echo):
    shown = shortened_answer(echo, ["user:pa\"'s", "pa\"'s"])

    assert HIDDEN in shown
    for secret in ("dXNlcjpwYSIncw", "pa%22", 'pa"', 'pa\\"', "another.token"):
        assert secret not in shown
