"""Producers: the programs that run here, as `runners/NAME/producer.toml` declares them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from producers.script import Script, script
from support.environments import install_node, install_python, run

ROOT = Path(__file__).parents[2]
RUNNERS = Path(__file__).parent / "runners"
SPANS = "otlp.jsonl"
"""Where the receiver writes what a producer exports."""
SHARED = Path(__file__).parent / "python" / "requirements.txt"
JAVASCRIPT = Path(__file__).parent / "javascript"
ENVIRONMENTS = ROOT / ".venv" / "producers"


@dataclass(frozen=True, eq=False)
class Producer:
    """A program that can play runs, with one way of recording them.

    Attributes:
        name: the runner's folder, and its variant if it has several.
        title: what documents call it; the first of ``requires`` is what the title's version is that of.
        language: how its environment is made.
        requires: packages with the versions that are installed.
        command: what plays a run; ``{here}`` is the runner's folder, copied to where its packages are found.
        runs: the runs that it can play.
        note: what is special about a variant, in a few words.
        recorder: what records its runs, such as an instrumentation, if not the program itself.
        recorder_requires: the packages that this takes, also with their versions.
        document: what it writes, a pattern of files in the output folder.
        convert: options of `kp-worker convert` that the documents tell to give, such as the ``{objective}``.
        environment: variables that are set.
        tools: how it calls the tools of the script.
        told: how its documents tell these calls, if otherwise than the model makes them.
        texts: what the model says in a ``call`` and in an ``answer``, if the program reads calls from texts.
        ungraded: the rewards that it gives a run that nobody grades.
        python: the version of Python that it needs, if not this one, which has to be in the PATH.
    """

    name: str
    title: str
    language: str
    requires: list[str]
    command: list[str]
    runs: list[str]
    note: str = ""
    recorder: str = ""
    recorder_requires: list[str] = field(default_factory=list)
    document: str = SPANS
    convert: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    tools: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    ungraded: dict[str, float] = field(default_factory=dict)
    python: str = sys.executable

    @property
    def folder(self) -> Path:
        return RUNNERS / self.name.split("/")[0]

    @property
    def place(self) -> Path:
        """Where its packages are; variants that need no others share the place."""
        return ENVIRONMENTS / (self.name if self.recorder_requires else f"{self.folder.name}/own")

    @property
    def packages(self) -> list[str]:
        return self.requires + self.recorder_requires

    @property
    def label(self) -> str:
        """The program and what records it, with their versions."""
        note = f" ({self.note})" if self.note else ""
        recorder = f" by {self.recorder} {version(self.recorder_requires)}" if self.recorder else ""
        return f"{self.title} {version(self.requires)}{note}{recorder}"

    def truth(self, run: str) -> Script:
        """Return what its documents have to tell of a run."""
        followed = script(run, self.tools | self.told)
        return replace(followed, rewards=followed.rewards or self.ungraded)

    def install(self) -> str:
        """Make the environment, unless it has these packages already; return why it could not be made."""
        made = self.place / "packages.txt"
        wanted = "\n".join(self.packages)
        if not made.exists() or made.read_text() != wanted:
            print(f"installing {self.name}: {' '.join(self.packages)}", file=sys.stderr)
            shutil.rmtree(self.place, ignore_errors=True)
            self.place.mkdir(parents=True)
            try:
                INSTALLERS[self.language](self)
            except FileNotFoundError as error:
                return f"there is no {error.filename}"
            except subprocess.CalledProcessError as error:
                return f"{' '.join(error.cmd[:4])} … ended with {error.returncode}"
            made.write_text(wanted)
        shutil.copytree(self.folder, self.place / "runner", dirs_exist_ok=True)
        shutil.copytree(JAVASCRIPT, self.place / "runner", dirs_exist_ok=True)
        return ""


def newest(producer: Producer) -> str:
    """Return the newest release of a producer's program, which is the first package that it requires.

    Raises:
        OSError: the client of its registry is missing.
        subprocess.CalledProcessError: the client found none.
    """
    name = re.split("==|(?!^)@", producer.requires[0])[0]
    if producer.language == "java":
        return _newest_of_maven(name)
    clients = {
        "python": [
            sys.executable,
            "-m",
            "pip",
            "index",
            "versions",
            "--ignore-requires-python",
            name.split("[")[0],
        ],
        "node": ["npm", "view", name, "version"],
        "go": ["go", "list", "-m", "-f", "{{.Version}}", f"{name}@latest"],
        "rust": ["cargo", "info", "--quiet", name],
    }
    told = subprocess.run(clients[producer.language], check=True, capture_output=True, text=True, cwd=ROOT)
    found = re.search(r"\((?:latest )?(.+?)\)|^(?:version: )?(v?\d\S*)$", told.stdout, re.MULTILINE)
    return next(filter(None, found.groups())) if found else ""


def _newest_of_maven(name: str) -> str:
    with TemporaryDirectory() as folder:
        Path(folder, "pom.xml").write_text(_project([f"{name}@LATEST"]))
        command = ["mvn", "--batch-mode", "dependency:list", "-DexcludeTransitive"]
        told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    found = re.search(rf"{re.escape(name)}:jar:(\S+?):", told.stdout)
    return found[1] if found else ""


def version(requirements: list[str]) -> str:
    """Return the version of the first requirement, as in ``a==1.2`` or ``@scope/a@1.2``."""
    return requirements[0].replace("==", "@").rsplit("@", 1)[1] if requirements else ""


def producers() -> Iterator[Producer]:
    """Yield all producers."""
    for file in sorted(RUNNERS.glob("*/producer.toml")):
        shared = tomllib.loads(file.read_text())
        variants = shared.pop("variants", {"": {}})
        for variant, own in variants.items():
            yield Producer(**shared | own, name="/".join(filter(None, (file.parent.name, variant))))


def _install_python(producer: Producer) -> None:
    install_python(producer.place, [*producer.packages, "--requirement", SHARED], producer.python)


def _install_node(producer: Producer) -> None:
    install_node(producer.place, [*producer.packages, *(JAVASCRIPT / "packages.txt").read_text().split()])


def _install_go(producer: Producer) -> None:
    """Build the runner's program, named as its folder, which needs nothing else afterwards."""
    sources = producer.place / "sources"
    shutil.copytree(producer.folder, sources)
    run("go", "mod", "init", producer.folder.name, folder=sources)
    run("go", "get", *producer.packages, folder=sources)
    run("go", "mod", "tidy", folder=sources)
    run("go", "build", "-o", f"{producer.place}/bin/", ".", folder=sources)


def _install_rust(producer: Producer) -> None:
    """Build the runner's package, whose `Cargo.toml` names what it needs besides the program."""
    sources = producer.place / "sources"
    shutil.copytree(producer.folder, sources)
    run("cargo", "add", "--quiet", *(each.replace("@", "@=") for each in producer.packages), folder=sources)
    run("cargo", "install", "--quiet", "--debug", "--path", ".", "--root", producer.place, folder=sources)


def _install_java(producer: Producer) -> None:
    """Compile the runner's classes, with packages of Maven's as ``group:artifact@version``."""
    place = producer.place
    (place / "pom.xml").write_text(_project(producer.packages))
    run(
        "mvn",
        "--quiet",
        "--batch-mode",
        "dependency:copy-dependencies",
        "-DoutputDirectory=lib",
        folder=place,
    )
    sources = producer.folder.glob("*.java")
    run("javac", "-parameters", "-cp", f"{place}/lib/*", "-d", place / "classes", *sources)


def _project(packages: list[str]) -> str:
    """Return a project of Maven's; a package of ``-dependencies`` only has versions that fit together."""
    managed = [_dependency(each, "pom", "import") for each in packages if "-dependencies@" in each]
    needed = [_dependency(each, "jar", "compile") for each in packages if "-dependencies@" not in each]
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>producers</groupId><artifactId>runner</artifactId>"
        f"<version>1</version><dependencyManagement><dependencies>{''.join(managed)}</dependencies>"
        f"</dependencyManagement><dependencies>{''.join(needed)}</dependencies></project>"
    )


def _dependency(package: str, kind: str, scope: str) -> str:
    values = [*re.split("[:@]", package), kind, scope]
    names = ("groupId", "artifactId", "version", "type", "scope")
    members = (f"<{name}>{value}</{name}>" for name, value in zip(names, values, strict=True))
    return f"<dependency>{''.join(members)}</dependency>"


INSTALLERS = {
    "python": _install_python,
    "node": _install_node,
    "go": _install_go,
    "java": _install_java,
    "rust": _install_rust,
}
