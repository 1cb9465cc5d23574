"""Tool definitions of any vendor: OpenAI, Anthropic, MCP, Bedrock, Gemini, OpenInference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import as_text, count_others, parse_json

_WRAPPERS = (
    "function",
    "toolSpec",
    "tool",
    "json_schema",
    "tools",
    "functionDeclarations",
    "function_declarations",
)
_PARAMETERS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")


def definitions_of(value: Any, path: str, losses: Losses) -> tuple[ir.Message, ...]:
    """Return a system message with the definitions in a request's tools; none if there are none.

    The value is a list of definitions, an object that contains one, or its JSON text. What is no definition,
    and a definition's other members, are losses.
    """
    definitions = tuple(_definitions(value, path, losses))
    return (ir.Message("system", definitions),) if definitions else ()


def _definitions(value: Any, path: str, losses: Losses) -> Iterator[ir.ToolDefinition]:
    value = parse_json(value)
    if isinstance(value, list):
        for item in value:
            yield from _definitions(item, f"{path}[]", losses)
        return
    if not isinstance(value, dict):
        losses.add(path, value)
        return
    rest = dict(value)
    if rest.get("type") == "function":
        del rest["type"]
    for name in _WRAPPERS:
        if name in rest and isinstance(parse_json(rest[name]), dict | list):
            yield from _definitions(rest.pop(name), f"{path}.{name}", losses)
    name = rest.pop("name", None)
    if isinstance(name, str) and name:
        parameters = next((rest.pop(known) for known in _PARAMETERS if known in rest), None)
        if isinstance(parameters, dict) and parameters.keys() == {"json"}:  # Bedrock
            parameters = parameters["json"]
        yield ir.ToolDefinition(name, as_text(rest.pop("description", "")), parameters)
    count_others(rest, set(), path, losses)
