"""What the documents say of the formats is what the code says."""

import pytest

from generator.formats import parts_of
from knowledgepulse_convert import INPUT_FORMATS
from support.conversions import FOLDER


@pytest.mark.parametrize("name", INPUT_FORMATS)
def test_a_format_says_what_it_accepts_and_where_it_comes_from(name):
    parts = parts_of(INPUT_FORMATS[name])

    assert parts.keys() == {"Accepts", "Source", "Compared with"}
    assert all(parts.values())


def test_every_format_has_recorded_documents():
    assert {file.stem for file in FOLDER.glob("*.jsonl")} == {*INPUT_FORMATS, "unknown"}
