"""Makes the environments of clients: a folder with a language's packages, beside the `runner`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_POM = """<project>
<modelVersion>4.0.0</modelVersion><groupId>clients</groupId><artifactId>clients</artifactId>
<version>1</version><packaging>pom</packaging><dependencies>{}</dependencies>
</project>"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def _python(place: Path, requires: Sequence[str], *, new: bool) -> None:
    """Packages of PyPI in a virtual environment, and those of Maven Central, with colons, in `jars`."""
    uv = [sys.executable, "-m", "uv"]
    jars = [each for each in requires if ":" in each]
    if new:
        _run(*uv, "venv", "--quiet", "--no-python-downloads", "--python", sys.executable, place / "venv")
        packages = [each for each in requires if each not in jars]
        _run(*uv, "pip", "install", "--quiet", "--python", place / "venv/bin/python", *packages)
        if jars:
            _java(place, jars, new=new)


def _node(place: Path, requires: Sequence[str], *, new: bool) -> None:
    if new:
        _run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", place, *requires)


def _go(place: Path, requires: Sequence[str], *, new: bool) -> None:
    runner = place / "runner"
    if new:
        _run("go", "mod", "init", "runner", folder=runner)
        _run("go", "get", *requires, folder=runner)
        _run("go", "mod", "tidy", folder=runner)
    _run("go", "build", "-o", place / "bin/run", ".", folder=runner)


def _java(place: Path, requires: Sequence[str], *, new: bool) -> None:
    if new:
        pom = place / "pom.xml"
        pom.write_text(_POM.format("".join(_DEPENDENCY.format(*each.split(":")) for each in requires)))
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={place}/jars")
        _run("mvn", "-q", "-B", "-f", pom, *goal)


def _run(*command: object, folder: Path | None = None) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=folder)


INSTALLERS: dict[str, Callable[..., None]] = {"python": _python, "node": _node, "go": _go, "java": _java}
