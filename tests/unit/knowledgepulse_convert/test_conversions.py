"""Documents of every format, each with the traces and losses that it gives: see ``support.conversions``."""

from copy import deepcopy

import pytest

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
