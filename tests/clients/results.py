"""The results of all clients: JSON beside the runners, from which the documents' tables are generated."""

from __future__ import annotations

import json
from typing import Any

from clients.client import Client

FILE = "results.json"
"""In each runner's folder."""


def keep(client: Client, broker: str, task: str, mode: str, result: dict[str, Any]) -> None:
    """Write a result to the runner's file, in place of the last one of the same client, task and mode."""
    file = client.folder / FILE
    kept = json.loads(file.read_text()) if file.exists() else {}
    known = kept.get(client.name, {})
    entry = known if known.get("version") == client.version else {}
    results = entry.get(task, {}) | {mode: result}
    kept[client.name] = entry | {"version": client.version, "broker": broker, task: results}
    file.write_text(json.dumps(dict(sorted(kept.items())), indent=1, sort_keys=True) + "\n")


def kept(client: Client) -> dict[str, Any]:
    """Return a client's results by task and mode."""
    file = client.folder / FILE
    return dict(json.loads(file.read_text()).get(client.name, {})) if file.exists() else {}
