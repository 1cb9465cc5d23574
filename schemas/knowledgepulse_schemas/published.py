"""Generate JSON Schemas (draft 2020-12) from the models."""

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


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the model's JSON Schema, with property names as they appear in the JSON."""
    schema = model.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def render(model: type[BaseModel]) -> str:
    """Return the content of the model's schema file."""
    return json.dumps(json_schema(model), indent=2, ensure_ascii=False) + "\n"


def write(directory: Path = DIRECTORY) -> None:
    """Write all schema files."""
    for name, model in PUBLISHED.items():
        (directory / name).write_text(render(model), encoding="utf-8")
