"""A part of the check: what is installed, what is run, and what was seen."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients.environments import INSTALLERS

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv" / "interoperability"


@dataclass(frozen=True)
class Case:
    """What a program did.

    Attributes:
        program: its name, with its version.
        what: what it was given or asked for, in Markdown.
        seen: what it did, in Markdown.
        expected: what the documents say that it does.
    """

    program: str
    what: str
    seen: str
    expected: str


@dataclass(frozen=True)
class Part:
    """Programs of one kind.

    Attributes:
        requires: packages with their versions: of PyPI, as in ``a==1.2``, or of Maven Central, as in
            ``group:a:1.2``. They are installed in a folder: ``bin/python``, and the jars in ``jars``.
        run: runs the programs; gets that folder.
    """

    requires: Sequence[str]
    run: Callable[[Path], Iterable[Case]]


def environment(name: str, requires: Sequence[str]) -> Path:
    """Return the folder with a part's packages, which are installed unless these are there already."""
    place = ENVIRONMENTS / name
    made, wanted = place / "packages.txt", "\n".join(requires)
    if not made.exists() or made.read_text() != wanted:
        print(f"installing {name}: {' '.join(requires)}", file=sys.stderr)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if requires:
            kind = "python" if any("==" in each for each in requires) else "java"
            INSTALLERS[kind](place, requires, new=True)
        made.write_text(wanted)
    return place


def version_of(requires: Sequence[str], package: str) -> str:
    """Return the version in which a part requires a package."""
    (found,) = (each for each in requires if package in each)
    return found.replace("==", ":").rsplit(":", 1)[1]
