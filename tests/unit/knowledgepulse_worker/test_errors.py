"""The error hierarchy matches the tree in its module's docstring."""

import inspect
import re
from typing import get_args

from knowledgepulse_schemas import DeadLetterHeaders
from knowledgepulse_worker import errors
from knowledgepulse_worker.errors import REASONS


def drawn() -> dict[str, str]:
    """Return each error in the tree with its base."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+) {2,}", line)
        if match:
            path = [*path[: len(match[1]) // 4], match[2]]
            parents[match[2]] = path[-2] if len(path) > 1 else "Exception"
    return parents


def test_the_tree_shows_every_error_below_its_base():
    defined = {
        name: error.__base__.__name__
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if error.__module__ == errors.__name__
    }

    assert drawn() == defined


def test_the_reasons_equal_those_in_the_dead_letter_schema():
    assert get_args(DeadLetterHeaders.model_fields["reason"].annotation) == REASONS
