"""What the documents say of the formats is what the code says."""

import re
from fnmatch import fnmatchcase

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


@pytest.mark.parametrize("name", INPUT_FORMATS)
def test_the_places_of_a_format_are_in_the_home_folder_and_those_that_its_page_names(name):
    """Programs look there without being told a file; a place that only one of them names is found by one."""
    told = re.findall(r"`(~/[^`]+)`", INPUT_FORMATS[name].accepts)
    places = [place for paths in INPUT_FORMATS[name].places.values() for place in paths]

    assert all(place.startswith(("~/.", "~/Library/")) for place in places)
    assert all(any(_may_name(place, path) for place in places) for path in told)


def _may_name(place: str, path: str) -> bool:
    """Check whether a place has the files of a path whose parts may be any; of folders at any depth, one."""
    return fnmatchcase(path.replace("*", "0-0"), place.replace("**/", "*"))
