"""``kp-worker config``."""

from __future__ import annotations

from pathlib import Path

import click

from worker.settings import load_settings, render
from worker.terminal.options import config_option


@click.command()
@config_option
def config(config: Path | None) -> None:
    """Print the effective settings as TOML, without secrets.

    Comments list the secrets that are set, the settings that are not, and the effective weights by domain.
    """
    click.echo(render(load_settings(config)), nl=False)
