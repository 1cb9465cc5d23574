"""Build the site, and check its links."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from generator.links import broken_links
from generator.llms import llms_text
from generator.staging import ROOT, stage


class BuildError(Exception):
    """The site was not built, or has broken links."""


def build(folder: Path) -> Path:
    """Stage the site's source in a folder, build the site of this version there and return its path.

    Raises:
        BuildError: at a warning of the builder, or a broken link.
        NoSentenceError: a page does not say what it is about.
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
    (site / "llms.txt").write_text(llms_text(folder), encoding="utf-8")
    if broken := broken_links(site):
        raise BuildError("\n".join(broken))
    return site
