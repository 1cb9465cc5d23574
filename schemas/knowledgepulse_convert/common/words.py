"""Sets of names, which formats have by the dozen."""

from __future__ import annotations


def words(names: str) -> frozenset[str]:
    """Return the names in a text, which are separated by white space."""
    return frozenset(names.split())
