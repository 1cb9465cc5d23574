"""The published JSON Schemas are generated from the models."""

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import knowledgepulse_schemas
from knowledgepulse_schemas.published import PUBLISHED, json_schema, write

DIRECTORY = Path(knowledgepulse_schemas.__file__).parent


@pytest.mark.parametrize("model", PUBLISHED.values(), ids=PUBLISHED)
def test_published_schemas_are_valid_draft_2020_12_schemas(model):
    schema = json_schema(model)

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)


def test_the_committed_schemas_match_the_models(tmp_path):
    """``python -m knowledgepulse_schemas`` regenerates them."""
    write(tmp_path)

    generated = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in DIRECTORY.glob("*.schema.json")}
    assert committed == generated


def test_the_scored_schema_requires_the_score(full_document):
    validator = Draft202012Validator(json_schema(PUBLISHED["scored-trace.schema.json"]))
    document = full_document()
    assert validator.is_valid(document)

    del document["metadata"]["quality_score"]

    assert not validator.is_valid(document)
