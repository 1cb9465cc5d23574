"""The table of the values that the Helm chart accepts, from their schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from generator import markdown
from generator.staging import ROOT

SCHEMA = ROOT / "deploy/helm/values.schema.json"


def table() -> str:
    """Return a row for each value; of the object `brokers`, for each of its members."""
    schema = json.loads(SCHEMA.read_bytes())
    return markdown.table("| value | default | |", _rows(schema["properties"]))


def _rows(properties: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in properties.items():
        if name == "brokers":
            yield from _rows(value["properties"], "brokers.")
        else:
            default = json.dumps(value["default"]).strip('"') if "default" in value else ""
            yield f"| `{prefix}{name}` | {default} | {value['description']} |"
