"""Programs that import the converters from their place before 0.5.0 still run."""

import importlib
import sys

import pytest

import knowledgepulse_convert


def test_the_former_place_has_the_same_names_and_says_where_they_are():
    sys.modules.pop("knowledgepulse_schemas.convert", None)

    with pytest.warns(DeprecationWarning, match="import knowledgepulse_convert"):
        former = importlib.import_module("knowledgepulse_schemas.convert")

    assert [name for name in knowledgepulse_convert.__all__ if not hasattr(former, name)] == []
