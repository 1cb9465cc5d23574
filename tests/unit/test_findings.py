"""A finding explains a decision to whoever reads it, and can be run alone."""

from __future__ import annotations

import os
import re

import pytest

from support.documents import ROOT

FINDINGS = sorted((ROOT / "findings").glob("*.sh"))
every_finding = pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)


@every_finding
def test_a_finding_says_what_it_shows_and_compares_with_what_was_seen(path):
    text = path.read_text()

    assert re.findall(r"^# ([A-Z]\w+): .", text, re.MULTILINE) == ["Expected", "Seen", "Versions", "So"]
    assert re.search(r"^# Versions: .*\d, \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    assert re.search(r"^diff - output <<'SEEN'\n(.+\n)+SEEN\n\Z", text, re.MULTILINE)


@every_finding
def test_a_finding_names_files_of_the_project_that_are_there(path):
    """What follows from it must still be there."""
    (consequence,) = re.findall(r"^# So: (.+)$", path.read_text(), re.MULTILINE)
    named = re.findall(r"[\w/-]+\.(?:md|py)\b", consequence)

    assert named
    assert [
        name for name in named if not any((ROOT / folder / name).is_file() for folder in ("", "worker"))
    ] == []


@every_finding
def test_a_finding_runs_without_the_product(path):
    assert os.access(path, os.X_OK)
    assert not re.search(r"kp-worker|import knowledgepulse", path.read_text())
