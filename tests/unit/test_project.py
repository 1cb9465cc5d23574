"""The files by which people follow the project agree with it."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from support.documents import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def test_the_changelog_has_an_entry_with_a_date_for_the_version():
    """A release without an entry tells nobody how to upgrade."""
    (latest,) = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", CHANGELOG, re.MULTILINE)[:1]
    assert latest == PROJECT["version"]


def test_the_changelog_begins_with_unreleased_changes():
    assert re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)[0] == "[Unreleased]"


def test_the_changelog_uses_the_headings_of_keep_a_changelog():
    headings = set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE))
    kept = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert headings <= kept


@pytest.mark.parametrize("overlay", ["gpu", "kafka-tls"])
def test_the_manifests_name_the_image_of_this_version(overlay):
    text = (ROOT / f"deploy/kubernetes/overlays/{overlay}/kustomization.yaml").read_text()
    (tag,) = re.findall(r"newTag: ([\d.]+)", text)
    assert tag == PROJECT["version"]


@pytest.fixture
def workflow():
    return yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]


def test_the_workflow_uses_actions_by_their_commits():
    """A tag can be moved, and an action runs with the repository's rights."""
    used = re.findall(r"uses: *(\S+)", (ROOT / ".github/workflows/ci.yml").read_text())

    assert used
    assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one)] == []


def test_the_workflow_calls_targets_of_the_makefile(workflow):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {
        target
        for step in workflow["steps"]
        for words in re.findall(r"^(?:sudo )?make (.+)$", step.get("run", ""), re.MULTILINE)
        for target in words.split()
    }
    assert {"lint", "test"} <= called <= targets


def test_the_workflow_tests_the_declared_versions_of_python(workflow):
    declared = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert workflow["strategy"]["matrix"]["python"] == declared
