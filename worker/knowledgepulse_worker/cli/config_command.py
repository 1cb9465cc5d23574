"""``kp-worker config``."""

from __future__ import annotations

from pathlib import Path

import click

from knowledgepulse_worker.settings import doubts_about, load_settings, render
from knowledgepulse_worker.terminal.config_option import config_option


@click.command()
@config_option
def config(config: Path | None) -> None:
    """Print the effective settings as TOML, without secrets.

    Comments describe each setting, name the settings that are not set and the secrets that are, and list the
    effective threshold and weights of each domain.
    """
    settings = load_settings(config)
    for doubt in doubts_about(settings):
        click.echo(f"warning: {doubt}", err=True)
    click.echo(render(settings), nl=False)
