"""Generate JSON Schemas from the models: draft 2020-12, and draft 7 for schema registries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from knowledgepulse_schemas.dead_letter import DeadLetterHeaders
from knowledgepulse_schemas.trace import ReasoningTrace, ScoredTrace

DIRECTORY = Path(__file__).parent

PUBLISHED: dict[str, type[BaseModel]] = {
    "reasoning-trace.schema.json": ReasoningTrace,
    "scored-trace.schema.json": ScoredTrace,
    "dead-letter-headers.schema.json": DeadLetterHeaders,
}

REGISTERED: dict[str, type[BaseModel]] = {
    "reasoning-trace.draft-07.schema.json": ReasoningTrace,
    "scored-trace.draft-07.schema.json": ScoredTrace,
}
"""The values of topics, in the draft that schema registries compare."""

_ANNOTATIONS = {"title", "description", "default", "examples"}
"""What constrains no document."""


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the model's JSON Schema, with property names as they appear in the JSON."""
    schema = model.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def draft_07(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema of draft 2020-12 in draft 7, which accepts the same documents.

    A ``$ref`` stands alone in it. ``format`` is left out, since validators of draft 7 enforce it, and an ISO
    8601 date-time without an offset is none of theirs. A member of any form is named in a comment, since
    schema registries take every property that is new in an open object as narrower than none.
    """
    return {**_in_draft_07(schema), "$schema": "http://json-schema.org/draft-07/schema#"}


def _in_draft_07(schema: Any) -> Any:
    match schema:
        case list():
            return [_in_draft_07(each) for each in schema]
        case {"$ref": str(reference)}:
            return {"$ref": reference.replace("#/$defs/", "#/definitions/")}
        case {"$defs": dict(definitions), **rest}:
            return {"definitions": _each_in_draft_07(definitions), **_in_draft_07(rest)}
        case {"properties": dict(properties), **rest}:
            free = {name: each for name, each in properties.items() if each.keys() <= _ANNOTATIONS}
            bound = {name: each for name, each in properties.items() if name not in free}
            return {**_in_draft_07(rest), **_comment(free), "properties": _each_in_draft_07(bound)}
        case dict():
            return {name: _in_draft_07(value) for name, value in schema.items() if name != "format"}
    return schema


def _each_in_draft_07(schemas: dict[str, Any]) -> dict[str, Any]:
    return {name: _in_draft_07(schema) for name, schema in schemas.items()}


def _comment(free: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return a comment on members of any form."""
    names = (
        f"{name} ({each['description']})" if "description" in each else name for name, each in free.items()
    )
    return {"$comment": f"in any form: {', '.join(names)}"} if free else {}


def render(schema: dict[str, Any]) -> str:
    """Return the content of a schema's file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write(directory: Path = DIRECTORY) -> None:
    """Write all schema files."""
    for name, model in PUBLISHED.items():
        (directory / name).write_text(render(json_schema(model)), encoding="utf-8")
    for name, model in REGISTERED.items():
        (directory / name).write_text(render(draft_07(json_schema(model))), encoding="utf-8")
