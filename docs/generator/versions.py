"""The versions of the site: a folder for each release, and the list by which the theme's menu switches."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

_VERSION = re.compile(r"\d+(\.\d+)+")


def add_version(built: Path, site: Path, version: str) -> None:
    """Copy a built site to the folder of its version, in place of what is there.

    Also writes what leads to the newest version: the list of all, a page that goes on to it, and its
    ``llms.txt`` where programs look for one.

    Args:
        built: the site that was built.
        site: the folder of all versions, which may have others.
        version: the version, such as ``0.4.0``.
    """
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.copytree(built, site / version)
    found = (path.name for path in site.iterdir() if path.is_dir() and _VERSION.fullmatch(path.name))
    versions = sorted(found, key=lambda name: [int(number) for number in name.split(".")], reverse=True)
    newest = versions[0]
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == newest else []} for name in versions
    ]
    (site / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (site / "index.html").write_text(_leading_to(newest), encoding="utf-8")
    text = (site / newest / "llms.txt").read_text(encoding="utf-8")
    (site / "llms.txt").write_text(text.replace("](", f"]({newest}/"), encoding="utf-8")


def _leading_to(version: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{version}</title>\n'
        f'<link rel="icon" href="{version}/assets/images/favicon.png">\n'
        f'<meta http-equiv="refresh" content="0; url={version}/index.html">\n'
        f'<a href="{version}/index.html">{version}</a>\n</html>\n'
    )
