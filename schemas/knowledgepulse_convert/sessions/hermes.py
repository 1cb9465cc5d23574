"""Sessions of Hermes Agent, one a line, as ``hermes sessions export`` writes them.

Accepts: what ``hermes sessions export`` writes.
Source: https://hermes-agent.nousresearch.com/docs.
Compared with: runs of 0.19.
"""

from __future__ import annotations

import re
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.exit_codes import WRAPPER
from knowledgepulse_convert.common.input_format import InputFormat, are_all
from knowledgepulse_convert.common.pattern import any_of
from knowledgepulse_convert.common.reading import (
    as_text,
    count_others,
    each,
    parse_json,
    text_or_none,
    without,
)
from knowledgepulse_convert.common.session_log import Transcript, project_of
from knowledgepulse_convert.messages import openai
from knowledgepulse_convert.messages.blocks import is_failed

_is_session = any_of({"id": str, "source": str, "started_at": ..., "system_prompt": ..., "messages": list})
_NOTICE = re.compile(r"\A\[System: ")
"""How texts of the program begin that it gives to the model as the user's."""
_ROW = (
    *("id", "session_id", "timestamp", "finish_reason", "tool_name", "reasoning", "reasoning_content"),
    *("token_count", "observed", "active", "compacted", "effect_disposition", "platform_message_id"),
)


def _run(session: Any, path: str) -> ir.Run:
    if not _is_session(session):
        raise ConversionError(f"{path or 'the document'}: no session with its messages")
    transcript = Transcript()
    run, losses = transcript.run, transcript.losses
    run.native_id, run.parent_id = session["id"], text_or_none(session.get("parent_session_id"))
    run.names = project_of(session.get("cwd"))
    transcript.named(session.get("model"))
    transcript.add("system", filter(None, [ir.Text(as_text(session["system_prompt"]))]), None)
    read = {"id", "parent_session_id", "cwd", "model", "system_prompt", "messages"}
    count_others(session, read, "", losses)
    for number, message in enumerate(session["messages"]):
        if isinstance(message, dict) and message.get("active") == 0:
            losses.add("messages[] that were taken back", message)
        elif isinstance(message, dict):
            _add(message, f"{path}.messages[{number}]", transcript)
        else:
            losses.add_unknown("messages[] of another form", message)
    return transcript.finish()


def _add(message: dict[str, Any], path: str, transcript: Transcript) -> None:
    at = transcript.reached(message.get("timestamp"))
    losses = transcript.losses
    thought = message.get("reasoning_content") or message.get("reasoning")
    told = without(message, *_ROW) | {"reasoning_content": thought}
    if message.get("role") == "tool":
        told["name"] = message.get("tool_name")
    (read,) = openai.messages_of([told], path, losses, "messages[]")
    role = "system" if read.role == "user" and _NOTICE.match(ir.join_texts(read.parts)) else read.role
    parts = [_unwrapped(part) for part in read.parts]
    transcript.add(role, [*parts, *ir.cut_off(message.get("finish_reason"))], at)


def _unwrapped(part: ir.Part) -> ir.Part:
    """Return the result of a command without what the program writes around it."""
    if isinstance(part, ir.ToolCallResponse):
        match parse_json(part.response):
            case {"output": str(output), **others} as result if result.keys() <= WRAPPER:
                error = text_or_none(others.get("error"))
                text = "\n".join(filter(None, (output, error if error not in (None, output) else None)))
                return ir.ToolCallResponse(text, part.id, part.name, failed=part.failed or is_failed(result))
    return part


FORMAT = InputFormat(
    "hermes",
    __doc__,
    "id source started_at system_prompt messages",
    lambda document: are_all(_is_session, document),
    lambda document: each(document, _run),
    places={"Hermes": ("~/.hermes/state.db",)},
)
