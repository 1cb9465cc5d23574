"""A document gives the same traces on one line, as `json.dump` writes it, and on many, as `jq` does."""

import json

import pytest

from knowledgepulse_schemas.convert import Conversion, Options
from knowledgepulse_worker.tools.convert.file_conversion import convert_lines
from support.conversions import FOLDER, read_cases

CASES = [
    pytest.param(case, id=f"{file.stem}: {case['name']}")
    for file in sorted(FOLDER.glob("*.jsonl"))
    for case in read_cases(file)
]


def outcomes(case, text):
    """Return the traces and the losses, or the kind of the error, of each run in a file."""
    options = Options(**case.get("options", {}))
    lines = text.encode("utf-8", "surrogatepass").splitlines(keepends=True)
    converted = convert_lines("file", lines, case.get("from", "auto"), options)
    return [
        (one.trace, dict(one.losses.items())) if isinstance(one, Conversion) else type(one)
        for _, one in converted
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_document_on_one_line_is_the_document_on_many(case):
    document = case["document"]

    assert outcomes(case, json.dumps(document)) == outcomes(case, json.dumps(document, indent=1))
