"""The files by which people follow the project agree with it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from support.documents import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
FRAGMENTS = sorted(path for path in (ROOT / "changelog.d").glob("*") if path.name != "README.md")
TYPES = {of["directory"]: of["name"] for of in PYPROJECT["tool"]["towncrier"]["type"]}


def test_the_changelog_begins_with_the_version():
    """A release without an entry tells nobody how to upgrade."""
    first = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)[0]
    assert re.fullmatch(rf"{re.escape(PROJECT['version'])} - \d{{4}}-\d\d-\d\d", first)


def test_the_changelog_groups_entries_by_what_the_reader_runs():
    headings = set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE))
    assert headings <= set(TYPES.values())


def test_an_entry_of_the_changelog_is_a_sentence_of_at_most_25_words():
    """Whoever upgrades reads them all; what needs more words is explained on a page."""
    released = re.findall(r"^- (.+(?:\n  .+)*)$", CHANGELOG, re.MULTILINE)
    entries = [*released, *(path.read_text().strip() for path in FRAGMENTS)]

    assert entries
    assert [entry for entry in entries if len(entry.split()) > 25 or not entry.endswith(".")] == []


def test_the_changelog_takes_every_entry_that_is_not_released():
    """As `towncrier build` writes them; a name without a type of pyproject.toml is its error."""
    build = [Path(sys.executable).parent / "towncrier", "build", "--draft", "--version", "next"]
    draft = subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert draft.count("\n- ") == len(FRAGMENTS)


def test_the_next_release_has_at_most_25_entries():
    """More are not read: what tells the same story is one entry."""
    assert len(FRAGMENTS) <= 25


@pytest.mark.parametrize("overlay", ["gpu", "kafka-tls"])
def test_the_manifests_name_the_image_of_this_version(overlay):
    text = (ROOT / f"deploy/kubernetes/overlays/{overlay}/kustomization.yaml").read_text()
    (tag,) = re.findall(r"newTag: ([\d.]+)", text)
    assert tag == PROJECT["version"]


def test_the_packages_page_has_no_pictures_and_links_of_the_repository():
    """Where the package is published, there are no other files beside its page."""
    hook = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]
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
    latest = CHANGELOG.split(f"\n## {PROJECT['version']} - ")[1].split("\n", 1)[1]
    assert done.stdout == latest.split("\n## ")[0] + "\n"


def test_what_a_release_publishes_was_tried_before():
    """And the tests, which run much code of others, cannot publish."""
    made = jobs(ROOT / ".github/workflows/release.yml")
    rights = {name: job.get("permissions", {}) for name, job in made.items()}

    assert [name for name in made if "id-token" in rights[name]] == ["release"]
    assert made["release"]["needs"] == ["packages", "image"]
    assert rights["packages"] == {}
    (tried,) = (
        number
        for number, step in enumerate(made["image"]["steps"])
        if step.get("run") == "make check NAME=image"
    )
    assert all("docker push" not in step.get("run", "") for step in made["image"]["steps"][:tried])


def test_the_page_of_releases_names_what_the_workflow_reads():
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    page = (ROOT / "CONTRIBUTING.md").read_text().split("### What a publisher sets once")[1]
    (environment,) = {
        job["environment"] for job in yaml.safe_load(workflow)["jobs"].values() if "environment" in job
    }

    read = set(re.findall(r"\b(?:vars|secrets)\.(\w+)", workflow))
    assert read | {environment} <= set(re.findall(r"`([\w.]+)`", page))
