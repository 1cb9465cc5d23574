"""``kp-worker config``."""

from __future__ import annotations

from pathlib import Path

import click

from worker.options import config_option
from worker.settings import load_settings, render


@click.command()
@config_option
def config(config: Path | None) -> None:
    """Print the effective settings as TOML, without secrets.

    Comments name the secrets that are set, what is not set, and the weights in force for each domain.
    """
    click.echo(render(load_settings(config)), nl=False)
