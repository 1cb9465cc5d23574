"""A schema registry takes each release's schemas as new versions of those of the last."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from knowledgepulse_schemas.published import REGISTERED, draft_07, json_schema
from support import schema_cases
from support.documents import ROOT
from support.mutations import mutated

REAL_TRACES = ROOT / "worker/knowledgepulse_worker/tools/demo/real_traces.jsonl"
RELEASES = sorted((ROOT / "tests/data/releases/schemas").iterdir())
RAW, SCORED = REGISTERED
ANNOTATIONS = {"title", "description", "default", "examples", "$comment"}
"""What constrains no document."""

SET_BY_WORKERS = {"metadata/quality_score"}

every_release = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)


def schema_of(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / name).read_text())


def registered(name: str) -> dict[str, Any]:
    return draft_07(json_schema(REGISTERED[name]))


def flat(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what constrains each member by its path; items of arrays are ``*``, alternatives numbered."""
    found = {}

    def visit(path: str, node: dict[str, Any]) -> None:
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].rpartition("/")[2]]
        own = {name: value for name, value in node.items() if name not in ANNOTATIONS}
        for name, member in own.pop("properties", {}).items():
            visit(f"{path}/{name}", member)
        if "items" in own:
            visit(f"{path}/*", own.pop("items"))
        for number, each in enumerate(own.pop("anyOf", ())):
            visit(f"{path}|{number}", each)
        found[path.lstrip("/")] = own

    visit("", {name: value for name, value in schema.items() if name not in ("$schema", "definitions")})
    return found


def problems(name: str, former: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield what would let a schema registry refuse a schema as the next version."""
    old, new = flat(former), flat(now)
    yield from (f"{path}: is gone" for path in old.keys() - new.keys())
    for path in old.keys() & new.keys():
        required = set(old[path].get("required", ())), set(new[path].get("required", ()))
        same = {**old[path], "required": 0} == {**new[path], "required": 0}
        if not same or (required[0] != required[1] if name == RAW else required[0] > required[1]):
            yield f"{path}: was {old[path]}, is {new[path]}"
    for path in new.keys() - old.keys() - SET_BY_WORKERS:
        yield f"{path}: a new member has no type or enum (`WithJsonSchema({{}})`), but {new[path]}"


@every_release
@pytest.mark.parametrize("name", REGISTERED)
def test_a_schema_registry_takes_the_schema_as_a_new_version(release, name):
    """Raw in both directions: what was accepted is accepted, and new traces are valid in former ones.

    A new member is documented without a type, since any other form of it was valid before, and passes
    through to the outputs.
    """
    assert list(problems(name, schema_of(release, name), registered(name))) == []


def test_the_schemas_of_the_last_release_that_may_change_them_are_kept():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert RELEASES[-1].name == version.rpartition(".")[0] + ".0"


def with_member(name: str, member: dict[str, Any]) -> dict[str, Any]:
    schema = json_schema(REGISTERED[name])
    schema["$defs"]["Step"]["properties"]["novel"] = member
    return draft_07(schema)


@pytest.mark.parametrize("name", REGISTERED)
@pytest.mark.parametrize(
    "member",
    [
        {"type": "string"},
        {"enum": ["a"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"$ref": "#/$defs/Tool"},
    ],
)
def test_a_new_member_with_a_type_is_noticed(name, member):
    assert list(problems(name, registered(name), with_member(name, member)))


@pytest.mark.parametrize("name", REGISTERED)
def test_a_new_member_of_any_form_is_only_documented(name):
    now = with_member(name, {"title": "Novel", "description": "a text"})

    assert not list(problems(name, registered(name), now))
    assert now["definitions"]["Step"]["$comment"] == "in any form: novel (a text)"


@pytest.mark.parametrize(("name", "noticed"), [(RAW, True), (SCORED, False)], ids=["raw", "scored"])
def test_only_outputs_may_be_sure_of_a_member_that_former_ones_lacked(name, noticed):
    former, now = registered(name), registered(name)
    now["required"] = [*now["required"], "source_skill"]

    assert bool(list(problems(name, former, now))) is noticed
    assert list(problems(name, now, former))


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    """All recorded traces, the cases of the schema's tests, and mutants of both."""
    random_, full = random.Random(81), schema_cases.full_document
    recorded = [json.loads(line) for line in REAL_TRACES.read_bytes().splitlines()]
    cases = [schema_cases.changed(full(), *case) for case in (*schema_cases.ACCEPTED, *schema_cases.REFUSED)]
    return [*recorded, *cases, *(mutated(random_, each) for each in (*recorded, *[full()] * 400))]


@pytest.mark.parametrize("model", REGISTERED.values())
@pytest.mark.slow
def test_draft_7_accepts_what_draft_2020_12_accepts(model, documents):
    modern, seventh = Draft202012Validator(json_schema(model)), Draft7Validator(draft_07(json_schema(model)))

    verdicts = [modern.is_valid(document) for document in documents]

    assert [seventh.is_valid(document) for document in documents] == verdicts
    assert min(verdicts.count(True), verdicts.count(False)) > 100


@pytest.mark.parametrize("name", REGISTERED)
def test_draft_7_says_nothing_that_its_validators_read_more_strictly(name):
    """Many enforce `format`, and refuse a time without an offset; members beside a `$ref` are ignored."""
    text = json.dumps(schema := registered(name))

    Draft7Validator.check_schema(schema)
    assert '"format"' not in text
    assert "$defs" not in text
