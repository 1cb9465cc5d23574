"""A model that follows a script, behind the APIs that agents know."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from aiohttp import web

from producers.protocols import Request, anthropic, chat, gemini, responses
from producers.script import Script, Turn

PROTOCOLS = (chat, responses, anthropic, gemini)
SIDE_ANSWER = Turn("Weighing bread")
"""What agents are told that ask for something else than the script, such as a title."""


class ScriptedModel:
    """Answers each request with the script's turn that comes next, and keeps the requests in a file.

    See `Producer` for ``texts``.

    A request holds the conversation, so no state is needed: the next turn is the one behind the last whose
    text or calls the request holds. Requests that are repeated get the same answer again.

    Attributes:
        holding: is set as soon as the answer to a held turn is awaited.
    """

    def __init__(self, script: Script, texts: dict[str, str], requests: Path) -> None:
        self._script = script
        self._texts = texts
        self._requests = requests
        self.holding = asyncio.Event()

    async def answer(self, http: web.Request) -> web.StreamResponse:
        protocol = _protocol(http.path)
        if protocol is None:
            raise web.HTTPNotFound
        body = await http.json()
        with self._requests.open("a") as file:
            file.write(json.dumps({"path": http.path, "body": body}, ensure_ascii=False) + "\n")
        body.setdefault("model", "scripted")
        request = protocol.request(body, http.path)
        turn = self._next_turn(request, json.dumps(body, ensure_ascii=False))
        if turn.held:
            self.holding.set()
            await asyncio.Event().wait()
        return await self._send(http, protocol, turn, body, stream=request.stream)

    def _next_turn(self, request: Request, body: str) -> Turn:
        conversation = self._conversation(request)
        if conversation is None:
            return SIDE_ANSWER
        said = [n for n, turn in enumerate(conversation.turns) if _is_said(turn, f"{body} {request.before}")]
        turn = conversation.turns[min(max(said, default=-1) + 1, len(conversation.turns) - 1)]
        if self._texts:
            return _in_text(turn, self._texts)
        return SIDE_ANSWER if (turn.calls or turn.held) and not request.has_tools else turn

    def _conversation(self, request: Request) -> Script | None:
        """Return the conversation whose objective was asked last, or to which the request adds."""
        asked = "\n".join(request.asked)
        last = max(self._script.conversations, key=lambda each: asked.rfind(each.objective))
        if last.objective in asked:
            return last
        added_to = (
            each for each in self._script.conversations for turn in each.turns if turn.text == request.before
        )
        return next(added_to, None)

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


def seen_results(requests: Path) -> set[str]:
    """Return what a model saw, from its file of requests: results of tools, some of which users tell."""
    entries = map(json.loads, requests.read_text().splitlines() if requests.exists() else ())
    return {
        text.strip()
        for entry in entries
        if (protocol := _protocol(entry["path"]))
        for request in [protocol.request(entry["body"], entry["path"])]
        for text in (*request.results, *request.asked)
    }


def _protocol(path: str) -> ModuleType | None:
    return next((each for each in PROTOCOLS if re.search(each.PATH, path)), None)


def _is_said(turn: Turn, body: str) -> bool:
    """Some programs keep of a turn with calls only the calls."""
    return (turn.text != "" and turn.text in body) or any(call.id in body for call in turn.calls)


def _in_text(turn: Turn, texts: dict[str, str]) -> Turn:
    """Return a turn whose call is a part of its text."""
    if not turn.calls:
        return replace(turn, text=texts["answer"].format(text=turn.text))
    (call,) = turn.calls
    arguments = json.dumps(call.arguments)
    return Turn(texts["call"].format(text=turn.text, tool=call.tool, arguments=arguments))
