"""Clients: the programs that run here, as `runners/NAME/client.toml` declares them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from clients.environments import INSTALLERS

ROOT = Path(__file__).parents[2]
RUNNERS = Path(__file__).parent / "runners"
ENVIRONMENTS = ROOT / ".venv" / "clients"

READ, BOUNDED, PUBLISH = "read", "bounded", "publish"
"""What a client may be asked to do."""

DEFAULT, SET = "default", "set"
"""With a client's own defaults, and with the setting that the documents tell to use."""


@dataclass(frozen=True, eq=False)
class Client:
    """A program that reads or publishes records.

    Attributes:
        name: the runner's folder, and its variant if it has several.
        title: what documents call it; the first of ``requires`` is what the title's version is that of.
        language: how its environment is made.
        requires: packages with the versions that are installed.
        command: what runs it; ``{here}`` is the runner's folder, copied to where its packages are found.
        tasks: what it can do.
        lag: what prints the lag of its group, if that is none of consumers, whose position is asked for.
        isolation: the setting that reads committed records, in Markdown; empty if there is none to make.
        partitioner: the setting that chooses partitions by murmur2, likewise.
        not_run: why it is not run here, if it is not.
    """

    name: str
    title: str
    language: str = ""
    requires: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    lag: list[str] = field(default_factory=list)
    isolation: str = ""
    partitioner: str = ""
    not_run: str = ""

    @property
    def folder(self) -> Path:
        return RUNNERS / self.name.split("/")[0]

    @property
    def place(self) -> Path:
        """Where its packages are; variants share it."""
        return ENVIRONMENTS / self.folder.name

    @property
    def version(self) -> str:
        """Return the version of the first requirement, as in ``a==1.2``, ``a@v1.2`` or ``group:a:1.2``."""
        return self.requires[0].replace("==", "@").replace(":", "@").rsplit("@", 1)[1].removeprefix("v")

    def places(self, command: list[str]) -> list[str]:
        """Return a command with the folders of the runner and of the packages."""
        return [part.format(here=self.place / "runner", place=self.place) for part in command]

    def modes(self, task: str) -> list[str]:
        """Return with what to run a task: twice if there is a setting."""
        setting = self.partitioner if task == PUBLISH else self.isolation
        return [DEFAULT, SET] if setting else [DEFAULT]

    def install(self) -> bool:
        """Make the environment, unless it has these packages already; return whether it could be made."""
        runner = self.place / "runner"
        made, wanted = self.place / "packages.txt", "\n".join(self.requires)
        if not made.exists() or made.read_text() != wanted:
            print(f"installing {self.name}: {' '.join(self.requires)}", file=sys.stderr)
            shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.folder, runner, dirs_exist_ok=True)
        try:
            INSTALLERS[self.language](self.place, self.requires, new=not made.exists())
        except subprocess.CalledProcessError:
            return False
        made.write_text(wanted)
        return True


def clients() -> Iterator[Client]:
    """Yield all clients."""
    for file in sorted(RUNNERS.glob("*/client.toml")):
        shared = tomllib.loads(file.read_text())
        variants = shared.pop("variants", {"": {}})
        for variant, own in variants.items():
            yield Client(**shared | own, name="/".join(filter(None, (file.parent.name, variant))))
