"""The licences of an installation."""

from __future__ import annotations

from email.message import Message
from importlib import metadata

import pytest

from worker.cli.licenses import NOT_STATED, _stated, licenses


def test_lists_every_distribution_and_data_file_once():
    rows = licenses()
    names = {row.name for row in rows}
    assert names >= {distribution.name for distribution in metadata.distributions()}
    assert {"all-MiniLM-L6-v2 (weights)", "real_traces.jsonl (tau-bench, Sierra; SWE-agent)"} <= names
    assert len(rows) == len(set(rows))
    assert all("\n" not in row.license and row.license for row in rows)


@pytest.mark.parametrize(
    ("headers", "license_"),
    [
        ([("License-Expression", "MIT OR Apache-2.0"), ("License", "long")], "MIT OR Apache-2.0"),
        ([("Classifier", "License :: OSI Approved :: MIT License"), ("License", "The text")], "MIT License"),
        ([("License", "BSD\n\nCopyright …")], "BSD"),
        ([("Classifier", "Framework :: AsyncIO")], NOT_STATED),
        ([("License", "  ")], NOT_STATED),
    ],
)
def test_reads_the_licence_from_the_metadata(headers, license_):
    package = Message()
    for name, value in headers:
        package[name] = value
    assert _stated(package) == license_
