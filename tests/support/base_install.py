"""An installation of `knowledgepulse-worker` without extras."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


class BaseInstall:
    """Runs `kp-worker` with the base dependencies alone.

    Args:
        folder: an empty folder, which gets links to the installed packages.
    """

    def __init__(self, folder: Path) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "worker", ROOT / "schemas", folder))),
        }
        for distribution in (metadata.distribution("knowledgepulse-worker"), *_base_distributions()):
            for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
                (folder / name).symlink_to(Path(str(distribution.locate_file(name))))

    def kp_worker(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return self.python("-m", "knowledgepulse_worker.cli.entry", *arguments, **environment)

    def python(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Python with `-S`, which leaves out all other installed packages."""
        return subprocess.run(
            [sys.executable, "-S", *arguments],
            env=self._environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def _base_distributions() -> list[metadata.Distribution]:
    """Return the distributions that the base dependencies require, directly or indirectly."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    to_do, done = [(Requirement(line), "") for line in project["dependencies"]], {}
    while to_do:
        requirement, extra = to_do.pop()
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        for needed in ("", *requirement.extras) if wanted else ():
            if (requirement.name, needed) not in done:
                done[requirement.name, needed] = metadata.distribution(requirement.name)
                lines = done[requirement.name, needed].requires or ()
                to_do += [(Requirement(line), needed) for line in lines]
    return list({distribution.name: distribution for distribution in done.values()}.values())
