"""Schema registries: whether they take the schemas, and the next release's, by the page's scripts."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

from interoperability.apicurio import JAVA, VERSION, running_apicurio
from interoperability.part import ROOT, Case, Part
from knowledgepulse_schemas import ReasoningTrace, ScoredTrace
from knowledgepulse_schemas.published import draft_07, json_schema
from support.documents import blocks

PAGE = "docs/operators/interoperability.md"
PROGRAM = f"Apicurio Registry {VERSION}"
ON_THE_PAGE = "http://localhost:8081"
TAKEN, REFUSED, FAILED = "taken", "refused", "status 500"

Schema = dict[str, Any]

RAW, SCORED = json_schema(ReasoningTrace), json_schema(ScoredTrace)
LEVELS = ("BACKWARD", "FORWARD", "FULL")


def _run(place: Path) -> Iterator[Case]:
    with running_apicurio(place) as address:
        registry = _Registry(address)
        yield from _scripts(address)
        yield from _new_members(registry)
        yield _case(
            "raw, then scored traces, under one subject at any level",
            {registry.takes(level, draft_07(RAW), draft_07(SCORED)) for level in ("FORWARD", *LEVELS)},
            REFUSED,
        )
        yield _case(
            "a second version in draft 2020-12, at any level",
            {registry.takes(level, RAW, RAW | {"description": "of the next release"}) for level in LEVELS},
            FAILED,
        )


def _case(what: str, seen: set[str], expected: str) -> Case:
    return Case(PROGRAM, what, ", ".join(sorted(seen)), expected)


def _scripts(address: str) -> Iterator[Case]:
    """Follow the page's scripts: the first twice, as at the next release; the other has names of its own."""
    scripts = (block.text for block in blocks(PAGE) if block.text.startswith("REGISTRY="))
    script, native = (text.replace(ON_THE_PAGE, address) for text in scripts)
    native = native.replace("groups/default", "groups/native")
    for what, text in (
        ("the script for Confluent's API", script),
        ("the same once more, as at a release without changes", script),
        ("the script for its own API", native),
    ):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text], cwd=ROOT, capture_output=True, text=True, check=False
        )
        yield Case(PROGRAM, what, TAKEN if done.returncode == 0 else done.stdout + done.stderr, TAKEN)


def _new_members(registry: _Registry) -> Iterator[Case]:
    """Add a member of any form to each schema, and one with a type."""
    for name, schema, level, typed in (
        ("raw", RAW, "FULL_TRANSITIVE", REFUSED),
        ("scored", SCORED, "FORWARD_TRANSITIVE", TAKEN),
    ):
        for kind, member, expected in (
            ("of any form", {"description": "a text"}, TAKEN),
            ("with a type", {"type": "string"}, typed),
        ):
            seen = registry.takes(level, draft_07(schema), draft_07(_with_member(schema, member)))
            yield _case(f"{name}: a new member {kind}, `{level}`", {seen}, expected)
    backward = registry.takes(
        "BACKWARD", draft_07(SCORED), draft_07(_with_member(SCORED, {"type": "string"}))
    )
    yield _case("scored: a new member with a type, `BACKWARD`", {backward}, REFUSED)


def _with_member(schema: Schema, member: Schema) -> Schema:
    changed = copy.deepcopy(schema)
    changed["$defs"]["Step"]["properties"]["novel"] = member
    return changed


class _Registry:
    """A schema registry, by Confluent's API."""

    def __init__(self, address: str) -> None:
        self._address = f"{address}/apis/ccompat/v7"

    def takes(self, level: str, first: Schema, second: Schema) -> str:
        """Register a schema and another one under a subject of its own; return what becomes of the second."""
        subject = f"trial-{uuid4()}"
        assert self._register(subject, first) == 200
        assert self._send("PUT", f"config/{subject}", {"compatibility": level}) == 200
        status = self._register(subject, second)
        return {200: TAKEN, 409: REFUSED}.get(status, f"status {status}")

    def _register(self, subject: str, schema: Schema) -> int:
        body = {"schemaType": "JSON", "schema": json.dumps(schema)}
        return self._send("POST", f"subjects/{subject}/versions", body)

    def _send(self, method: str, path: str, body: Schema) -> int:
        headers = {"Content-Type": "application/json"}
        request = Request(f"{self._address}/{path}", json.dumps(body).encode(), headers, method=method)
        try:
            with urlopen(request) as response:
                return int(response.status)
        except HTTPError as error:
            return error.code


PART = Part((JAVA,), _run)
