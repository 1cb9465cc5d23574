"""The embedded text equals the reference's, to the space."""

import pytest

from schemas import ReasoningTrace
from worker.scoring import embedding_text


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (["look", "act"], "Fix it look act"),
        ([" look "], "Fix it  look "),
        (["look", None, "act"], "Fix it look  act"),
        (["look", "", "act"], "Fix it look  act"),
        ([None], "Fix it "),
        ([None, None], "Fix it  "),
    ],
)
def test_the_objective_and_the_contents_are_joined_with_single_spaces(contents, expected):
    trace = ReasoningTrace.new(
        objective="Fix it",
        steps=[
            {"type": "tool_call", "content": content, "tool": {"name": "x"}, "output_summary": "y"}
            for content in contents
        ],
        result_summary="not part of it",
        confidence=1,
        success=True,
        task_domain="code",
    )

    assert embedding_text(trace) == expected
