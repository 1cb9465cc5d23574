"""The worker sees that its model does not know the languages of its traces."""

import pytest

from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.stream.languages import unknown_script

ENGLISH, KOREAN = (400, 0), (40, 160)
LANGUAGE_EACH = Policy(domains={"ko": {"share": 0.1}})


def test_a_fifth_of_letters_in_another_script_is_told_with_its_remedies():
    problem = unknown_script({"default": [ENGLISH] * 60 + [KOREAN] * 60}, Policy(share=0.1))

    assert problem.startswith("27% of the letters in the last 120 traces of default are not Latin")
    assert "a domain with a share, or use a multilingual model" in problem


def test_a_language_with_a_threshold_of_its_own_is_told():
    problem = unknown_script({"ko": [(0, 200)] * 60}, Policy(domains={"ko": {"threshold": 0.5}}))

    assert problem.startswith("100% of the letters in the last 60 traces of ko")


@pytest.mark.parametrize(
    ("letters", "policy"),
    [
        ({}, Policy()),
        ({"default": [ENGLISH] * 100 + [KOREAN] * 30}, Policy()),
        ({"default": [KOREAN] * 49}, Policy()),
        ({"default": [(0, 0)] * 60}, Policy()),
        ({"default": [ENGLISH] * 60, "ko": [KOREAN] * 60 + [(0, 200)] * 60}, LANGUAGE_EACH),
        ({"ja": [KOREAN] * 60}, LANGUAGE_EACH),
    ],
    ids=["nothing", "less than a fifth", "few texts", "no letters", "a domain each", "a domain that is gone"],
)
def test_else_nothing_is(letters, policy):
    assert unknown_script(letters, policy) == ""
