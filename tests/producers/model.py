"""A model that follows a script, behind the APIs that agents know."""

from __future__ import annotations

import asyncio
import json
import re
from types import ModuleType
from typing import Any

from aiohttp import web

from producers.protocols import Request, anthropic, chat, gemini, responses
from producers.script import Script, Turn

PROTOCOLS = (chat, responses, anthropic, gemini)
SIDE_ANSWER = Turn("Weighing bread")
"""What agents are told that ask for something else than the script, such as a title."""


class ScriptedModel:
    """Answers each request with the script's turn that comes next.

    A request holds the conversation, so no state is needed: the next turn is the one behind the last whose
    text the request holds. Requests that are repeated get the same answer again.

    Attributes:
        requests: the bodies of the requests, in order.
        seen: the tools' results, as requests had them.
        holding: is set as soon as the answer to a held turn is awaited.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[dict[str, Any]] = []
        self.seen: set[str] = set()
        self.holding = asyncio.Event()

    async def answer(self, http: web.Request) -> web.StreamResponse:
        protocol = next((each for each in PROTOCOLS if re.search(each.PATH, http.path)), None)
        if protocol is None:
            raise web.HTTPNotFound
        body = await http.json()
        self.requests.append(body)
        body.setdefault("model", "scripted")
        request = protocol.request(body, http.path)
        self.seen.update(request.results)
        turn = self._next_turn(request, json.dumps(body, ensure_ascii=False))
        if turn.held:
            self.holding.set()
            await asyncio.Event().wait()
        return await self._send(http, protocol, turn, body, stream=request.stream)

    def _next_turn(self, request: Request, body: str) -> Turn:
        asked = "\n".join(request.asked)
        conversation = max(self._script.conversations, key=lambda each: asked.rfind(each.objective))
        if conversation.objective not in asked:
            return SIDE_ANSWER
        said = [n for n, turn in enumerate(conversation.turns) if turn.text in body]
        turn = conversation.turns[min(max(said, default=-1) + 1, len(conversation.turns) - 1)]
        return SIDE_ANSWER if turn.calls and not request.has_tools else turn

    async def _send(
        self, http: web.Request, protocol: ModuleType, turn: Turn, body: dict[str, Any], *, stream: bool
    ) -> web.StreamResponse:
        if not stream:
            return web.json_response(protocol.answer(turn, body))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        for part in protocol.streamed(turn, body):
            await response.write(part.encode())
        return response
