"""Which of several headers of a name is the worker's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas import last_header

NAMES = st.sampled_from(["kp-source", "kp-score", "traceparent"])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=4)))


@given(HEADERS, st.binary())
def test_the_last_of_a_name_is_taken_whatever_a_producer_wrote(headers, ours):
    assert last_header([*headers, ("kp-source", ours), ("kp-policy", b"")], "kp-source") == ours


def test_a_header_that_is_not_there_is_none():
    assert last_header([("kp-score", b"1")], "kp-source") is None
