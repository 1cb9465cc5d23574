"""What of a trace is shown to people."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.records.decode_content import content_of
from knowledgepulse_worker.scoring import shortened


def trace(*steps, result="Done.", **metadata):
    document = {
        "metadata": metadata,
        "task": {"objective": "Find  the\nbug " + "x" * 400},
        "steps": steps,
        "outcome": {"result_summary": result},
    }
    return json.dumps(document).encode()


def call(query, tool="search"):
    return {"type": "tool_call", "tool": {"name": tool}, "input": {"q": query}}


def test_shows_both_ends_of_the_steps_on_lines_of_their_own():
    content = content_of(trace(call("a"), *({"type": "thought", "content": f"Step\n{n}"} for n in range(9))))

    assert content.objective.startswith("Find the bug xxx")
    assert (len(content.objective), content.objective[-1]) == (300, "…")
    assert content.steps[:2] == ('tool_call: search {"q": "a"}', "thought: Step 0")
    assert content.steps[3:] == ("… 3 more …", *(f"thought: Step {n}" for n in range(5, 9)))


@pytest.mark.parametrize(("given_id", "native_id"), [("run-7", "run-7"), (7, None), ({"a": []}, None)])
def test_a_native_id_is_text(given_id, native_id):
    assert content_of(trace(native_id=given_id)).native_id == native_id


@given(st.text(), st.integers(1, 50))
def test_a_shortened_text_is_one_line_of_bounded_length(text, most):
    line = shortened(text, most)

    assert len(line) <= most
    assert len(line.splitlines()) <= 1
    assert line == " ".join(text.split()) or line.endswith("…")
