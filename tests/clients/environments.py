"""Makes the environments of clients: a folder with a language's packages, beside the `runner`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from support.environments import install_node, install_python, run

_POM = """<project>
<modelVersion>4.0.0</modelVersion><groupId>clients</groupId><artifactId>clients</artifactId>
<version>1</version><packaging>pom</packaging><dependencies>{}</dependencies>
</project>"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def _python(place: Path, requires: Sequence[str], *, new: bool) -> None:
    """Install packages of PyPI, and those of Maven Central, with colons, in `jars`."""
    jars = [each for each in requires if ":" in each]
    if new:
        install_python(place, [each for each in requires if each not in jars])
        if jars:
            _java(place, jars, new=new)


def _node(place: Path, requires: Sequence[str], *, new: bool) -> None:
    if new:
        install_node(place, requires)


def _go(place: Path, requires: Sequence[str], *, new: bool) -> None:
    runner = place / "runner"
    if new:
        run("go", "mod", "init", "runner", folder=runner)
        run("go", "get", *requires, folder=runner)
        run("go", "mod", "tidy", folder=runner)
    run("go", "build", "-o", place / "bin/run", ".", folder=runner)


def _java(place: Path, requires: Sequence[str], *, new: bool) -> None:
    if new:
        pom = place / "pom.xml"
        pom.write_text(_POM.format("".join(_DEPENDENCY.format(*each.split(":")) for each in requires)))
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={place}/jars")
        run("mvn", "-q", "-B", "-f", pom, *goal)


INSTALLERS: dict[str, Callable[..., None]] = {"python": _python, "node": _node, "go": _go, "java": _java}
