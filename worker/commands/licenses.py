"""``kp-worker licenses``."""

from __future__ import annotations

import click

from worker.licenses import licenses


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
