"""A trace as JSON data, and the published schema to validate it."""

from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.published import json_schema
from support import schema_cases


@pytest.fixture(scope="session")
def full_document() -> Callable[[], dict[str, Any]]:
    """Return a factory of valid traces with every member of the schema."""
    return schema_cases.full_document


@pytest.fixture(scope="session")
def published() -> Draft202012Validator:
    """Return a validator for the published JSON Schema of raw traces."""
    return Draft202012Validator(json_schema(ReasoningTrace))
