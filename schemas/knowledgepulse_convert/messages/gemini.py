"""Gemini's contents, also in a request, in snake case or camel case.

Source: https://ai.google.dev/api/generate-content; the types of ``google-genai``.
Compared with: its documents, in November 2026.
"""

from __future__ import annotations

from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, count_others, text_or_none, unwrap, without
from knowledgepulse_convert.common.statuses import is_failure

_MEDIA = {"inlineData", "inline_data", "fileData", "file_data", "thoughtSignature", "thought_signature"}
"""Members of parts that hold no text or call."""
_RUNS_CODE = "code_execution"


def recognises(value: Any) -> bool:
    """Check for a content; its parts, unlike those of OpenTelemetry's conventions, have no ``type``."""
    parts = value.get("parts") if isinstance(value, dict) else None
    return isinstance(parts, list) and all(isinstance(part, dict) and "type" not in part for part in parts)


def recognises_all(document: Any) -> bool:
    """Check for contents, alone or in a request."""
    contents = unwrap(document, "contents")
    return isinstance(contents, list) and bool(contents) and all(map(recognises, contents))


def message_of(content: Any, role: ir.Role, path: str, losses: Losses) -> ir.Message:
    """Convert a content: ``{"role", "parts": [{"text" | "function_call" | …}]}``; ``role`` if it has none.

    Raises:
        ConversionError: it has no parts.
    """
    if not isinstance(content, dict) or not isinstance(content.get("parts"), list):
        raise ConversionError(f"{path}: not an object with `parts`")
    count_others(content, {"role", "parts"}, path, losses)
    parts = (_part(part, f"{path}.parts[]", losses) for part in content["parts"])
    return ir.message(ir.ROLES.get(as_text(content.get("role")), role), *parts)


def answer_of(response: dict[str, Any], path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Convert a candidate, or a response of the Agent Development Kit: ``{"content", "finish_reason"}``."""
    content, finish = response.get("content"), response.get("finish_reason", response.get("finishReason"))
    answer = (message_of(content, "assistant", f"{path}.content", losses),) if content else ()
    return (*answer, *ir.end_of(finish))


def _part(part: Any, path: str, losses: Losses) -> ir.Part | None:
    match part:
        case {"function_call": dict(called), **rest} | {"functionCall": dict(called), **rest}:
            count_others(rest | called, {"name", "args", "id"}, path, losses)
            return ir.ToolCall(
                as_text(called.get("name")), called.get("args"), text_or_none(called.get("id"))
            )
        case {"function_response": dict(answered), **rest} | {"functionResponse": dict(answered), **rest}:
            count_others(rest | answered, {"name", "response", "id"}, path, losses)
            text, failed = _response(answered.get("response"))
            call_id, name = text_or_none(answered.get("id")), text_or_none(answered.get("name"))
            return ir.ToolCallResponse(text, call_id, name, failed=failed)
        case {"executable_code": dict(code), **rest} | {"executableCode": dict(code), **rest}:
            count_others(rest, set(), path, losses)
            return ir.ToolCall(_RUNS_CODE, without(code, "id"), text_or_none(code.get("id")))
        case {"code_execution_result": dict(ran), **rest} | {"codeExecutionResult": dict(ran), **rest}:
            count_others(rest | ran, {"outcome", "output", "id"}, path, losses)
            failed = is_failure(ran.get("outcome"))
            call_id = text_or_none(ran.get("id"))
            return ir.ToolCallResponse(as_text(ran.get("output")), call_id, _RUNS_CODE, failed=failed)
        case {"text": str(text), **rest}:
            count_others(rest, {"thought"}, path, losses)
            return ir.Reasoning(text) if rest.get("thought") is True else ir.Text(text)
    if isinstance(part, dict) and not _MEDIA.isdisjoint(part):
        losses.add(path, part)
    else:
        losses.add_unknown(path, part, {"content": part})
    return None


def _response(response: Any) -> tuple[str, bool]:
    """Return a function's response as text, and whether the function failed.

    The API documents the keys ``output`` and ``error``; ``isError`` is that of MCP's results.
    """
    match response:
        case {"error": error, **rest} if error and not rest:
            return as_text(error), True
        case {"output": output, **rest} if not rest:
            return as_text(output), False
        case {"error": error} if error:
            return as_text(response), True
        case {"isError": True}:
            return as_text(response), True
    return as_text(response), False
