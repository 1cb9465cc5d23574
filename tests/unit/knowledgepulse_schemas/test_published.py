"""The published JSON Schemas are generated from the models."""

from pathlib import Path

import knowledgepulse_schemas
from knowledgepulse_schemas.published import write

DIRECTORY = Path(knowledgepulse_schemas.__file__).parent


def test_the_committed_schemas_match_the_models(tmp_path):
    """``python -m knowledgepulse_schemas`` regenerates them."""
    write(tmp_path)

    generated = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in DIRECTORY.glob("*.schema.json")}
    assert committed == generated
