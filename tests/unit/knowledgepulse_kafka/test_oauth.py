"""Access tokens are cached until they age, and every failure names its setting."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import pytest
from aiohttp import web

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.oauth import ClientCredentials, TokenError, token_provider
from knowledgepulse_worker.tools.demo.processes import LOOPBACK
from support.served import served

SECRET = "canary-5150"
CREDENTIALS = b64encode(f"id:{SECRET}".encode()).decode()


class Endpoint:
    """A token endpoint with a response set by the test."""

    def __init__(self):
        self.requests = 0
        self.status, self.body = 200, {"access_token": "token", "expires_in": 100}

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/", self._answer)
        self._served = served(app)
        self.url = f"{await self._served.__aenter__()}/"
        return self

    async def __aexit__(self, *_):
        await self._served.__aexit__(*_)

    async def _answer(self, _request):
        self.requests += 1
        if isinstance(self.body, dict):
            return web.json_response(self.body, status=self.status)
        headers = {"Location": f"{self.url}elsewhere"} if self.status == 307 else {}
        body = self.body.encode() if isinstance(self.body, str) else self.body
        return web.Response(body=body, status=self.status, headers=headers)


async def test_a_token_is_cached_for_most_of_its_lifetime():
    now = 1000.0
    async with Endpoint() as endpoint:
        token = ClientCredentials(endpoint.url, "id", SECRET, None, clock=lambda: now)
        assert await token() == "token"
        endpoint.body = {"access_token": "next", "expires_in": 100}
        now += 79
        assert await token() == "token"
        now += 2
        assert await token() == "next"
        assert endpoint.requests == 2


@pytest.mark.parametrize("expires_in", [None, "soon", -5, 0, pytest.param(10**400, id="huge")])
async def test_a_token_of_unknown_lifetime_is_used_once(expires_in):
    async with Endpoint() as endpoint:
        endpoint.body["expires_in"] = expires_in
        token = ClientCredentials(endpoint.url, "id", SECRET, None)
        await token()
        await token()
        assert endpoint.requests == 2


@pytest.mark.parametrize(
    ("status", "body", "refused", "message"),
    [
        (401, {"error": "invalid_client"}, True, "refuses them: invalid_client"),
        (401, {"error": f"{SECRET} and {CREDENTIALS}"}, True, r"refuses them: \*\*\* and \*\*\*$"),
        (401, {"error": {"code": 1}}, True, "refuses them: HTTP status 401"),
        (400, "<html>", True, "refuses them: HTTP status 400"),
        (200, b"\xff", False, "returned no token: HTTP status 200"),
        (200, "[" * 200_000, False, "returned no token: HTTP status 200"),
        (503, "", False, "returned no token: HTTP status 503"),
        (200, "<html>", False, "returned no token: HTTP status 200"),
        (200, {"access_token": 5}, False, "returned no token: HTTP status 200"),
        (200, "[]", False, "returned no token"),
        (307, "", False, "returned no token: HTTP status 307"),
    ],
)
async def test_an_endpoint_s_failure_is_reported(status, body, refused, message):
    async with Endpoint() as endpoint:
        endpoint.status, endpoint.body = status, body
        with pytest.raises(TokenError, match=message) as raised:
            await ClientCredentials(endpoint.url, "id", SECRET, None)()
    assert raised.value.refused == refused
    assert endpoint.requests == 1, "a redirect would send the secret elsewhere"
    assert SECRET not in str(raised.value)


async def test_an_endpoint_s_address_is_shown_without_secrets():
    url = f"http://{LOOPBACK}:1/token?key={SECRET}"
    with pytest.raises(TokenError, match=r"/token\?\*\*\*: Cannot connect") as raised:
        await ClientCredentials(url, "id", SECRET, None)()
    assert SECRET not in str(raised.value)


# --- a function provided by the user


async def from_elsewhere():
    await asyncio.sleep(0)
    return "a-token"


async def fails():
    raise ValueError(SECRET)


async def returns_nothing():
    return None


@pytest.fixture
def provider():
    return lambda function: token_provider(Config(sasl_oauthbearer_token_provider=function, prefix="kafka."))


async def test_tokens_come_from_the_given_function(provider):
    assert await provider(from_elsewhere).token() == "a-token"


@pytest.mark.parametrize("function", [fails, returns_nothing])
async def test_a_failing_function_is_reported_without_its_error_text(provider, function):
    with pytest.raises(TokenError, match=r"kafka\.sasl_oauthbearer_token_provider: ") as raised:
        await provider(function).token()
    assert SECRET not in str(raised.value)
