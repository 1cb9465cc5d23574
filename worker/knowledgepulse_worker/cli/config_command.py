"""``kp-worker config``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from knowledgepulse_worker.settings import Settings, doubts_about, load_settings, render, render_changed
from knowledgepulse_worker.terminal.config_option import config_option


@click.command()
@config_option
@click.option("--changed", is_flag=True, help="Print only the settings that differ from their defaults.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the settings file, for editors.")
def config(config: Path | None, changed: bool, schema: bool) -> None:
    """Print the effective settings as TOML, without secrets.

    Comments describe each setting, name the settings that are not set and the secrets that are, and list the
    effective threshold and weights of each domain.
    """
    if schema:
        click.echo(json.dumps(Settings.model_json_schema(), indent=2))
        return
    settings = load_settings(config)
    for doubt in doubts_about(settings):
        click.echo(f"warning: {doubt}", err=True)
    click.echo((render_changed if changed else render)(settings), nl=False)
