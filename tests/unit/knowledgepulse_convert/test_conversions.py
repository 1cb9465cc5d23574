"""Documents of every format, each with the traces and losses that it gives: see ``support.conversions``."""

from copy import deepcopy

import pytest

from knowledgepulse_convert import INPUT_FORMATS, input_format_of
from support.conversions import FOLDER, outcomes_of, read_cases

CASES = [
    pytest.param(case, id=f"{file.stem}: {case['name']}")
    for file in sorted(FOLDER.glob("*.jsonl"))
    for case in read_cases(file)
]


@pytest.mark.parametrize("case", CASES)
def test_a_document_gives_these_traces_and_losses(case):
    before = deepcopy(case["document"])

    assert outcomes_of(case) == case["expected"]
    assert case["document"] == before


def test_the_members_of_lines_rule_out_no_format_that_fits():
    documents = [case.values[0]["document"] for case in CASES]

    found = [input_format_of(document) for document in documents if document]

    asked = (
        [each for each in INPUT_FORMATS.values() if each.fits(document)] for document in documents if document
    )
    assert found == [next(iter(fitting), None) for fitting in asked]
