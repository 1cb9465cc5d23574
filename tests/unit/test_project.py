"""The files by which people follow the project agree with it."""

from __future__ import annotations

import re
import subprocess
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


def test_the_packages_page_has_no_pictures_and_links_of_the_repository():
    """Where the package is published, there are no other files beside its page."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]
    page = (ROOT / "README.md").read_text()
    for substitution in hook["fancy-pypi-readme"]["substitutions"]:
        page = re.sub(substitution["pattern"], substitution["replacement"], page)
    assert "](" not in page
    assert "with the KnowledgePulse formula" in page


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
every_workflow = pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)


def jobs(workflow):
    return yaml.safe_load(workflow.read_text())["jobs"]


def targets_called(workflow):
    return {
        word
        for job in jobs(workflow).values()
        for step in job["steps"]
        for words in re.findall(r"^(?:sudo )?make (.+)$", step.get("run", ""), re.MULTILINE)
        for word in words.split()
        if "=" not in word
    }


@every_workflow
def test_the_workflows_use_actions_by_their_commits(workflow):
    """A tag can be moved, and an action runs with the repository's rights."""
    used = re.findall(r"uses: *(\S+)", workflow.read_text())

    assert used
    assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []


@every_workflow
def test_the_workflows_call_targets_of_the_makefile(workflow):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"lint", "test", "dist"} <= targets_called(workflow) <= targets


@every_workflow
def test_every_job_has_a_limit(workflow):
    assert all("timeout-minutes" in job for job in jobs(workflow).values())


@pytest.mark.parametrize("job", ["unit", "test"])
def test_the_workflow_tests_the_declared_versions_of_python(job):
    declared = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert jobs(ROOT / ".github/workflows/ci.yml")[job]["strategy"]["matrix"]["python"] == declared


def test_the_release_takes_its_notes_from_the_changelogs_latest_section():
    (notes,) = [
        step["run"].splitlines()[0].replace("> notes.md", "")
        for step in jobs(ROOT / ".github/workflows/release.yml")["release"]["steps"]
        if "notes.md" in step.get("run", "")
    ]
    done = subprocess.run(["sh", "-c", notes], cwd=ROOT, check=True, capture_output=True, text=True)
    latest = CHANGELOG.split(f"\n## [{PROJECT['version']}] - ")[1].split("\n", 1)[1]
    assert done.stdout == latest.split("\n## [")[0] + "\n"
