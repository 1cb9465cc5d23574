"""Validation stops at a list's first invalid item, as every error takes time and memory."""

import pytest
from pydantic import ValidationError

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.trace import KnowledgeGraphDelta, Metadata


@pytest.mark.parametrize(
    ("model", "members"),
    [
        (ReasoningTrace, {"steps": [0] * 1000}),
        (KnowledgeGraphDelta, {"entities": [{}] * 1000}),
        (KnowledgeGraphDelta, {"relationships": [0] * 1000}),
        (Metadata, {"validated_by": [0] * 1000}),
    ],
)
def test_only_the_first_invalid_item_of_a_list_is_reported(model, members):
    with pytest.raises(ValidationError) as caught:
        model.model_validate(members)
    name = next(iter(members))
    assert {error["loc"][1] for error in caught.value.errors() if error["loc"][0] == name} == {0}
