"""Finding the worker's header among several with the same name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_schemas import last_header

NAMES = st.sampled_from(["kp-source", "kp-score", "traceparent"])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=4)))


@given(HEADERS, st.binary())
def test_returns_the_last_header_with_the_name(headers, ours):
    assert last_header([*headers, ("kp-source", ours), ("kp-policy", b"")], "kp-source") == ours


def test_a_missing_header_is_none():
    assert last_header([("kp-score", b"1")], "kp-source") is None
