"""``kp-worker config``."""

from __future__ import annotations

from pathlib import Path

import click

from knowledgepulse_worker.settings import load_settings, render
from knowledgepulse_worker.terminal.options import config_option


@click.command()
@config_option
def config(config: Path | None) -> None:
    """Print the effective settings as TOML, without secrets.

    Comments say what each setting is, which are not set, which secrets are, and the effective weights by
    domain.
    """
    click.echo(render(load_settings(config)), nl=False)
