"""Build the site, and check its links."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from generator.links import broken_links
from generator.staging import ROOT, stage


class BuildError(Exception):
    """The site was not built, or has broken links."""


def build(folder: Path) -> Path:
    """Stage the site's source in a folder, build the site there and return its path.

    Raises:
        BuildError: at a warning of the builder, or a broken link.
    """
    stage(folder)
    zensical = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    done = subprocess.run(  # noqa: S603  our own program
        zensical,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "docs")},  # for the extension generator.roles
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise BuildError(done.stdout)
    site = folder / "site"
    if broken := broken_links(site):
        raise BuildError("\n".join(broken))
    return site
