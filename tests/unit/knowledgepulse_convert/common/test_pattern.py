"""Patterns say what an object has, and places what is read of it."""

import pytest

from knowledgepulse_convert.common.pattern import Pattern, Places, at

LINE = {"type": "message.said", "at": None, "message": {"role": "user", "size": 2}}


@pytest.mark.parametrize(
    ("conditions", "fits"),
    [
        ({}, True),
        ({"type": "message.said"}, True),
        ({"type": "message"}, False),
        ({"type": ("message.", "tool.")}, True),
        ({"type": ("tool.",)}, False),
        ({at("message", "role"): {"user", "assistant"}}, True),
        ({at("message", "role"): {"assistant"}}, False),
        ({at("message", "model"): {"m", None}}, True),
        ({at("message", "size"): {"2", None}}, False),
        ({at("message", "size"): int, "message": dict}, True),
        ({at("message", "size"): str}, False),
        ({"at": ...}, True),
        ({"on": ...}, False),
        ({"at": None, "on": None, at("type", "of"): None}, True),
        ({"type": None}, False),
    ],
)
def test_an_object_fits_a_pattern_if_it_has_all_of_it(conditions, fits):
    assert Pattern(conditions).fits(LINE) is fits


def test_the_rest_of_an_object_is_what_is_read_at_no_path():
    places = Places([at("type"), at("message", "role"), None])

    assert dict(places.rest_of(LINE)) == {"at": None, "message.size": 2}
    assert dict(places.rest_of({"message": "text"})) == {"message": "text"}
    assert dict(places.under("message").rest_of({"role": "user", "size": 2})) == {"size": 2}
    assert dict(places.under("other").rest_of({"size": 2})) == {"size": 2}
