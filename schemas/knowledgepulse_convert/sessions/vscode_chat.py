"""VS Code's chats: ``chatSessions/*.json``, and what "Chat: Export Chat…" writes.

The parts of a response are made for the screen. The result of a request also has the rounds of model and
tools, whose calls have arguments and results.

Source: https://github.com/microsoft/vscode, ``chatModel.ts``, and
    https://github.com/microsoft/vscode-copilot-chat, ``toolCallRound.ts``.
Compared with: public files of September 2025 to January 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.input_format import InputFormat, of_records
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import (
    InputModel,
    as_text,
    count_others,
    count_unmapped,
    read,
)
from knowledgepulse_convert.common.session_log import Transcript


class _Text(InputModel):
    text: str | list[str] | None = None


class _Call(InputModel):
    name: str
    arguments: Any = None
    id: str | None = None


class _Round(InputModel):
    response: str | None = None
    thinking: _Text | None = None
    calls: list[_Call] = Field(default_factory=list, alias="toolCalls")


class _Metadata(InputModel):
    rounds: list[_Round] = Field(default_factory=list, alias="toolCallRounds")
    results: dict[str, Any] = Field(default_factory=dict, alias="toolCallResults")


class _Failure(InputModel):
    message: str | None = None


class _Timings(InputModel):
    total: float | None = Field(default=None, alias="totalElapsed")


class _Result(InputModel):
    failure: _Failure | None = Field(default=None, alias="errorDetails")
    timings: _Timings | None = None
    metadata: _Metadata | None = None


class _Request(InputModel):
    message: _Text
    timestamp: float | None = None
    model: str | None = Field(default=None, alias="modelId")
    response: list[dict[str, Any]] | None = None
    result: _Result | None = None
    is_canceled: bool | None = Field(default=None, alias="isCanceled")


class _Session(InputModel):
    id: str | None = Field(default=None, alias="sessionId")
    requests: list[_Request]


def _recognises(document: Any) -> bool:
    match document:
        case {"responderUsername": str(), "requests": [*requests]}:
            return all(isinstance(request, dict) and "message" in request for request in requests)
    return False


def _run_of(document: Any, path: str) -> ir.Run:
    session = read(_Session, document, path)
    transcript = Transcript()
    transcript.run.native_id = session.id
    count_unmapped(session, "", transcript.losses)
    for request in session.requests:
        _add_request(request, transcript)
    return transcript.finish()


def _add_request(request: _Request, transcript: Transcript) -> None:
    result = request.result or _Result()
    metadata = result.metadata or _Metadata()
    at = transcript.reached_milliseconds(request.timestamp)
    transcript.named(request.model)
    transcript.add("user", [ir.Text(_joined(request.message))], at)
    if result.timings is not None and result.timings.total is not None and request.timestamp is not None:
        transcript.reached_milliseconds(request.timestamp + result.timings.total)
    for call_id in _failed(request.response or [], metadata.rounds):
        transcript.fail(call_id)
    for model_round in metadata.rounds:
        thought = ir.reasoning(_joined(model_round.thinking or _Text()))
        said = ir.Text(model_round.response) if model_round.response else None
        calls = (ir.ToolCall(call.name, call.arguments, call.id) for call in model_round.calls)
        transcript.add("assistant", ir.message("assistant", thought, said, *calls).parts)
        for call in model_round.calls:
            if call.id in metadata.results:
                text = _result_text(metadata.results.pop(call.id), transcript.losses)
                transcript.add("tool", [ir.ToolCallResponse(text, call.id, call.name)])
    transcript.losses.add("results without a call", metadata.results)
    if metadata.rounds:
        transcript.losses.add("parts of responses for the screen", request.response)
    else:
        transcript.add("assistant", _shown(request.response or [], transcript.losses))
    if request.is_canceled:
        transcript.add("assistant", [ir.Error(interruption=True)])
    elif result.failure is not None:
        transcript.add("assistant", [ir.Error(result.failure.message or "")])


def _failed(parts: list[dict[str, Any]], rounds: list[_Round]) -> Iterator[str]:
    """Yield the ids of the calls whose results are errors.

    Only the parts for the screen have the flag. Their ids differ, but they are in the order of the calls.
    """
    flags: dict[str, list[bool]] = {}
    ids: dict[str, list[str]] = {}
    for part in parts:
        match part:
            case {"kind": "toolInvocationSerialized", "toolId": str(tool), **rest}:
                details = rest.get("resultDetails")
                flags.setdefault(tool, []).append(
                    isinstance(details, dict) and details.get("isError") is True
                )
    for call in (call for model_round in rounds for call in model_round.calls):
        ids.setdefault(call.name, []).append(call.id or "")
    for tool, flagged in flags.items():
        if len(flagged) == len(ids.get(tool, ())):
            yield from (call_id for call_id, failed in zip(ids[tool], flagged, strict=True) if failed)


def _joined(text: _Text) -> str:
    return "\n".join(text.text) if isinstance(text.text, list) else text.text or ""


def _shown(parts: list[dict[str, Any]], losses: Losses) -> Iterator[ir.Text]:
    """Yield the text of a response as the user saw it; calls are losses, as they have no arguments."""
    texts = []
    for part in parts:
        if "kind" not in part and isinstance(part.get("value"), str):
            texts.append(part["value"])
        else:
            losses.add_unknown(f"response[].{as_text(part.get('kind'))}", part)
    if texts:
        yield ir.Text("".join(texts))


def _result_text(result: Any, losses: Losses) -> str:
    """Return the text of a tool's result, whose contents are texts or trees of texts."""
    contents = result.get("content") if isinstance(result, dict) else None
    if not isinstance(contents, list):
        return as_text(result)
    count_others(result, {"$mid", "content"}, "toolCallResults", losses)
    texts = []
    for content in contents:
        match content:
            case {"value": str(text), **rest}:
                texts.append(text)
                count_others(rest, {"$mid"}, "toolCallResults.content[]", losses)
            case {"value": {"node": dict(node), **value}, **rest}:
                texts.append("".join(_texts_of(node, losses)))
                count_others(rest | value, {"$mid"}, "toolCallResults.content[]", losses)
            case _:
                losses.add("toolCallResults.content[]", content)
    return "\n".join(texts)


def _texts_of(node: dict[str, Any], losses: Losses) -> Iterator[str]:
    """Yield the texts of a tree in order."""
    rest: list[Any] = [node]
    while rest:
        node = rest.pop()
        if not isinstance(node, dict):
            losses.add("toolCallResults.content[].node", node)
            continue
        text, children = node.get("text"), node.get("children")
        count_others(node, {"text", "children"}, "toolCallResults.content[].node", losses)
        if isinstance(text, str):
            yield "\n" if node.get("lineBreakBefore") else ""
            yield text
        rest += reversed(children if isinstance(children, list) else [])


FORMAT = InputFormat(
    "vscode_chat", __doc__, "responderUsername requests", *of_records(_recognises, _run_of), coding_agent=True
)
