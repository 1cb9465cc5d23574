"""The tables of the page on interoperability come from runs of the releases that the parts name."""

import pytest

from interoperability.part import version_of
from interoperability.parts import PARTS
from interoperability.results import kept


@pytest.mark.parametrize("name", PARTS)
def test_a_part_has_results_of_its_releases_and_all_are_as_the_page_says(name):
    found = kept()[name]

    assert found["requires"] == list(PARTS[name].requires)
    assert found["cases"]
    assert [case for case in found["cases"] if case["seen"] != case["expected"]] == []


@pytest.mark.parametrize("required", ["a-client==1.2.3", "org.example:a-client:1.2.3"])
def test_the_version_of_a_package_is_that_which_is_installed(required):
    assert version_of(["other==9", required], "a-client") == "1.2.3"
