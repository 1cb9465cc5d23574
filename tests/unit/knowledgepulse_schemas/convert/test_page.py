"""The page of the converters matches the code."""

import re

import knowledgepulse_schemas.convert
from knowledgepulse_schemas.convert import INPUT_FORMATS
from support.documents import table


def test_the_page_lists_every_source_and_its_function():
    rows = [
        re.findall(r"`([^`]+)`", row.rsplit("|", 2)[0])
        for row in table("docs/producers/convert.md", "Sources")
    ]

    assert {name for row in rows for name in row if name in INPUT_FORMATS} == set(INPUT_FORMATS)
    assert all(
        hasattr(knowledgepulse_schemas.convert, name)
        for row in rows
        for name in row
        if name.startswith("from_")
    )
