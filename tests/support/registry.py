"""A small KnowledgePulse registry for tests.

It answers like ``registry/src`` of https://github.com/chesterkuo/OpenKnowledgePulse, which no package
contains. ``make check NAME=registry`` sends the same requests to a real registry.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from aiohttp import ClientSession, web

from support.served import served

WRITES = {"free": 30, "enterprise": 2000}
READS = {"free": 300, "enterprise": 10_000}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Registry:
    """The registry's state.

    Attributes:
        units: the units by id.
        posts: the idempotency keys of the POSTs of units that were answered with 201, by id.
        refusals: the number of requests over the limit.
        silent_at: the number of units at which it does not answer before it ends; None for never.
        script: answers that replace the registry's own for the next POSTs of units; each is used once.
    """

    def __init__(self) -> None:
        self.units: dict[str, dict] = {}
        self.posts: dict[str, list[str]] = {}
        self.refusals = 0
        self.silent_at: int | None = None
        self._ends = asyncio.Event()
        self.script: deque[Answer] = deque()
        self._keys: dict[str, tuple[str, str]] = {}
        self._buckets: dict[tuple[str, bool], tuple[float, float]] = {}

    def app(self) -> web.Application:
        self._ends.clear()
        app = web.Application(middlewares=[self._limit], client_max_size=2**24)
        app.on_shutdown.append(self._end)
        app.router.add_post("/v1/auth/register", self._register)
        app.router.add_post("/v1/knowledge", self._create)
        app.router.add_get("/v1/knowledge/{id}", self._get)
        app.router.add_delete("/v1/knowledge/{id}", self._delete)
        app.router.add_get("/v1/export/{agent}", self._export)
        return app

    async def _end(self, _app):
        self._ends.set()

    def _agent(self, request):
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return self._keys.get(key, (None, "anonymous"))

    def revoke(self, agent: str) -> None:
        self._keys = {key: owner for key, owner in self._keys.items() if owner[0] != agent}

    @web.middleware
    async def _limit(self, request, handler):
        if request.path.endswith("/auth/register"):
            return await handler(request)
        agent, tier = self._agent(request)
        writes = request.method == "POST"
        limit = (WRITES if writes else READS).get(tier, 0 if writes else 60)
        tokens, since = self._buckets.get((agent or "unknown", writes), (limit, time.monotonic()))
        now = time.monotonic()
        tokens = min(limit, tokens + (now - since) * limit / 60)
        headers = {"X-RateLimit-Limit": str(limit), "X-RateLimit-Remaining": str(max(0, int(tokens - 1)))}
        if tokens < 1:
            self._buckets[agent or "unknown", writes] = tokens, now
            self.refusals += agent is not None
            if self.refusals >= 3:
                self.revoke(agent)
            return web.json_response(
                {"error": "Rate limit exceeded"}, status=429, headers=headers | {"Retry-After": "60"}
            )
        self._buckets[agent or "unknown", writes] = tokens - 1, now
        response = await handler(request)
        if not response.prepared:
            for name, value in headers.items():
                response.headers.setdefault(name, value)
        return response

    async def _register(self, request):
        body = await request.json()
        key = f"kp_{len(self._keys):064x}"
        self._keys[key] = body["agent_id"], body["tier"]
        return web.json_response({"data": {"api_key": key}}, status=201)

    async def _create(self, request):
        if self.script:
            return await self.script.popleft()(request)
        agent, _ = self._agent(request)
        if agent is None:
            return web.json_response({"error": "Authentication required for write operations"}, status=401)
        unit = await request.json()
        if not unit["metadata"]["created_at"].endswith("Z"):
            issues = [{"path": "metadata.created_at", "message": "Invalid datetime"}]
            return web.json_response({"error": "Invalid KnowledgeUnit", "issues": issues}, status=400)
        self.units[unit["id"]] = unit
        self.posts.setdefault(unit["id"], []).append(request.headers["Idempotency-Key"])
        if len(self.units) == self.silent_at:
            await self._ends.wait()
        return web.json_response({"data": {"id": unit["id"], "unit": unit}}, status=201)

    async def _get(self, request):
        unit = self.units.get(request.match_info["id"])
        if unit is None:
            return web.json_response({"error": "Knowledge unit not found"}, status=404)
        return web.json_response({"data": {"id": unit["id"], "unit": unit}})

    async def _delete(self, request):
        agent, _ = self._agent(request)
        unit = self.units.get(request.match_info["id"])
        if agent is None:
            return web.json_response({"error": "Authentication required"}, status=401)
        if unit is None:
            return web.json_response({"error": "Knowledge unit not found"}, status=404)
        if unit["metadata"].get("agent_id") != agent:
            return web.json_response({"error": "Forbidden"}, status=403)
        del self.units[unit["id"]]
        return web.json_response({"deleted": True, "unit_id": unit["id"]})

    async def _export(self, request):
        agent, _ = self._agent(request)
        if agent is None:
            return web.json_response({"error": "Authentication required"}, status=401)
        if agent != request.match_info["agent"]:
            return web.json_response({"error": "Forbidden"}, status=403)
        return web.json_response({"data": {"agent_id": agent}})


def serving(registry: Registry, port: int | None = None) -> AbstractAsyncContextManager[str]:
    """Serve a registry; yield its address."""
    return served(registry.app(), port)


async def register(url: str, agent: str, tier: str = "enterprise") -> str:
    """Return a new key."""
    body = {"agent_id": agent, "scopes": ["read", "write"], "tier": tier}
    async with ClientSession() as session, session.post(f"{url}/v1/auth/register", json=body) as response:
        return (await response.json())["data"]["api_key"]


def saying(status: int, body: object = "<html>Sign in</html>", **headers: str) -> Answer:
    """Return an answer; a text is sent as HTML, everything else as JSON."""

    async def answer(_request):
        if isinstance(body, str):
            return web.Response(status=status, text=body, content_type="text/html", headers=headers)
        return web.json_response(body, status=status, headers=headers)

    return answer


async def hanging_up(request):
    """Close the connection in the middle of the answer."""
    response = web.StreamResponse(status=201, headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(json.dumps({"data": {}}).encode())
    request.transport.close()
    return response


async def never(_request):
    """Never answer."""
    await asyncio.Event().wait()
