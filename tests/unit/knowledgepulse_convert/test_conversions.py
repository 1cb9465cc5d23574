"""Documents of every format, each with the traces and losses that it gives: see ``support.conversions``."""

from copy import deepcopy

import pytest

from knowledgepulse_convert import INPUT_FORMATS, input_format_of
from support.conversions import FOLDER, outcomes_of, read_cases

FILES = sorted(FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_document_of_a_format_gives_these_traces_and_losses(file):
    for case in read_cases(file):
        before = deepcopy(case["document"])

        assert outcomes_of(case) == case["expected"], case["name"]
        assert case["document"] == before, case["name"]


def test_the_members_of_lines_rule_out_no_format_that_fits():
    documents = [case["document"] for file in FILES for case in read_cases(file)]

    found = [input_format_of(document) for document in documents if document]

    asked = (
        [each for each in INPUT_FORMATS.values() if each.fits(document)] for document in documents if document
    )
    assert found == [next(iter(fitting), None) for fitting in asked]
