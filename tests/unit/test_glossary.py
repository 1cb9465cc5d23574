"""The glossary of worker/README.md has each word once, and retired words do not come back as names."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from support.documents import ROOT, table

RETIRED = {
    "RejectedRecord": "InvalidRecordError",
    "ScoreHeader": "Score",
    "RecentVectors": "embedding cache",
    "SourceModel": "InputModel",
    "TopicSource": "TopicInputs",
    "FileSource": "FileInputs",
    "placed_lines": "located_lines",
    "typed_weights": "rounded_weights",
    "score_and_remember": "a vector is added to the novelty cache",
}
"""Names that had several meanings, or a second name for one thing, with their replacements."""


@pytest.fixture(scope="module")
def nodes():
    """Return the syntax nodes of all modules by path."""
    return {
        path.relative_to(ROOT): list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for folder in ("worker", "schemas")
        for path in (ROOT / folder).rglob("*.py")
    }


def names(nodes):
    """Return every name that a module defines or uses."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]


def terms():
    """Return the glossary's terms."""
    return [re.match(r"\| \*\*(.+?)\*\* \| \S", row)[1] for row in table("worker/README.md", "Glossary")]


def test_each_term_is_explained_once_in_order():
    assert terms() == sorted(set(terms()))


def test_no_term_names_two_classes(nodes):
    defined = Counter(
        node.name.lower() for ours in nodes.values() for node in ours if isinstance(node, ast.ClassDef)
    )
    assert {term: defined[name] for term in terms() if defined[name := term.replace(" ", "")] > 1} == {}


def test_retired_words_are_no_names(nodes):
    used = {(name, str(path)) for path, ours in nodes.items() for name in names(ours)}
    assert {(name, path) for name, path in used if name in RETIRED} == set()
