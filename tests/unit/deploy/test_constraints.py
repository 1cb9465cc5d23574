"""constraints.txt pins versions that can be installed together."""

import re
from importlib import metadata

from packaging.requirements import Requirement

PROJECT = "knowledgepulse-worker"


def pins(root):
    lines = (root / "constraints.txt").read_text().splitlines()
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def required(distribution, extras):
    """Return the requirements of a distribution on this machine."""
    for line in metadata.requires(distribution) or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        ):
            yield requirement


def test_all_pins_are_mutually_compatible(root):
    """pip rejects incompatible pins, which would break the image, ``make demo`` and CI."""
    pinned = pins(root)
    to_do, done, wrong = [(PROJECT, frozenset({"test"}))], set(), []
    while to_do:
        wanted = to_do.pop()
        done.add(wanted)
        for requirement in required(*wanted):
            name = normal(requirement.name)
            version = pinned.get(name)
            if name == PROJECT or (version and requirement.specifier.contains(version, prereleases=True)):
                to_do += {(name, frozenset(requirement.extras))} - done
            else:
                wrong.append(f"{wanted[0]} needs {requirement}, pinned is {version}")

    assert wrong == []
