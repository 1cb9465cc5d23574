"""Each error hierarchy matches the tree in its module's docstring."""

import inspect
import os
import re

import pytest

import knowledgepulse_kafka.errors
import knowledgepulse_worker.errors


def drawn(errors) -> dict[str, str]:
    """Return each error in the tree with its base."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+) {2,}", line)
        if match:
            path = [*path[: len(match[1]) // 4], match[2]]
            parents[match[2]] = path[-2] if len(path) > 1 else "Exception"
    return parents


@pytest.mark.parametrize("errors", [knowledgepulse_kafka.errors, knowledgepulse_worker.errors])
def test_the_tree_shows_every_error_below_its_base(errors):
    defined = {
        name: error.__base__.__name__
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if error.__module__ == errors.__name__ and issubclass(error, Exception)
    }

    assert drawn(errors) == defined


def test_what_only_a_person_can_mend_has_an_exit_status_of_its_own():
    """What starts programs again need not start these."""
    mended = {
        error.__name__
        for module in (knowledgepulse_kafka.errors, knowledgepulse_worker.errors)
        for _, error in inspect.getmembers(module, inspect.isclass)
        if issubclass(error, knowledgepulse_worker.errors.EXPECTED)
        and knowledgepulse_worker.errors.exit_status_of(error.__new__(error)) == os.EX_CONFIG
    }

    assert mended == {
        *("SettingsError", "StartError", "ModelError", "MissingExtraError", "AccessError"),
        *("ConfigurationError", "SecurityError", "BrokerError"),
    }
