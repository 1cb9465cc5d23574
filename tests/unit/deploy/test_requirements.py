"""What is installed into the image and for the tests: the tested versions, each file with its hash."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TESTED = ["demo", "export", "otel", "policy", "secrets"]
EXTRAS = {
    "deploy/requirements.txt": ["worker", "otel"],
    "deploy/requirements-cuda.txt": ["worker", "otel", "sentence-transformers"],
    "requirements/demo.txt": ["demo"],
    "requirements/docs.txt": [],
    "requirements/test.txt": TESTED,
    "requirements/reference.txt": [*TESTED, "sentence-transformers"],
}
"""Each file with the extras that it installs."""
GROUPS = {
    "requirements/docs.txt": ["docs"],
    "requirements/test.txt": ["docs", "test"],
    "requirements/reference.txt": ["docs", "test", "reference"],
}
"""And with the dependency groups."""

every_file = pytest.mark.parametrize(
    "file", [*EXTRAS, "deploy/build.txt", "deploy/compiler.txt", "deploy/weights.txt"]
)


def requirements(root, file):
    """Return the requirements in a file with their hashes."""
    for line in (root / file).read_text().replace("\\\n", " ").splitlines():
        requirement, *hashes = line.split("--hash=")
        yield Requirement(requirement), [digest.strip() for digest in hashes]


def names(root, file):
    return {canonicalize_name(requirement.name) for requirement, _ in requirements(root, file)}


@every_file
def test_every_package_has_hashes_and_no_registry_is_named(root, file):
    for requirement, hashes in requirements(root, file):
        assert hashes, requirement
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement
        assert requirement.url is None


@every_file
def test_versions_match_the_tested_ones(root, file):
    pinned = {
        canonicalize_name(name): version
        for name, version in (line.split("==") for line in (root / "constraints.txt").read_text().split())
    }
    here = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    for requirement, _ in requirements(root, file):
        if requirement.marker is None or requirement.marker.evaluate(here):
            assert str(requirement.specifier) == f"=={pinned[canonicalize_name(requirement.name)]}"


@pytest.mark.parametrize(
    "file",
    # What PyTorch needs is known only where it is installed.
    [
        pytest.param(file, marks=[pytest.mark.reference] if "sentence-transformers" in extras else [])
        for file, extras in EXTRAS.items()
    ],
)
def test_all_dependencies_are_included(root, file):
    """pip follows none where these files are installed."""
    groups = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"]
    grouped = [
        Requirement(group)
        for name in GROUPS.get(file, ())
        for group in groups[name]
        if isinstance(group, str)
    ]
    to_do, done = [("knowledgepulse-worker", frozenset(EXTRAS[file]))], set()
    to_do += [(canonicalize_name(requirement.name), frozenset(requirement.extras)) for requirement in grouped]
    while to_do:
        wanted = to_do.pop()
        done.add(wanted)
        for requirement in map(Requirement, metadata.requires(wanted[0]) or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted[1])):
                to_do += {(canonicalize_name(requirement.name), frozenset(requirement.extras))} - done
    assert {name for name, _ in done} - {"knowledgepulse-worker"} <= names(root, file)


def test_only_the_image_for_cuda_has_pytorch(root):
    assert "torch" in names(root, "deploy/requirements-cuda.txt")
    assert not {"torch", "triton", "transformers"} & names(root, "deploy/requirements.txt")
