"""The options of a conversion, which are declared without what converts."""

from typing import get_args

import pytest

from knowledgepulse_schemas.trace import PrivacyLevel, Visibility
from knowledgepulse_worker.tools.convert.convert_command import convert


@pytest.mark.parametrize(("option", "values"), [("visibility", Visibility), ("privacy_level", PrivacyLevel)])
def test_an_option_takes_the_values_that_a_trace_may_have(option, values):
    [found] = [each for each in convert.params if each.name == option]
    assert tuple(found.type.choices) == get_args(values)
