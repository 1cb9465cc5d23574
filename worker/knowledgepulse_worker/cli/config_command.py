"""``kp-worker config``."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.settings import (
    Settings,
    doubts_about,
    load_settings,
    render,
    render_changed,
    sections,
)
from knowledgepulse_worker.settings.finding import SETTINGS_FILE
from knowledgepulse_worker.terminal.config_option import config_option, settings_file

SCHEMA_ID = "urn:knowledgepulse-worker:settings"
"""The identity of the schema of settings files (JSON Schema 2020-12, ``$id``)."""


@click.command()
@config_option
@click.option("--changed", is_flag=True, help="Print only the settings that differ from their defaults.")
@click.option(
    "--init", is_flag=True, help="Write a first worker.toml into this folder, with what to choose first."
)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the settings file, for editors.")
def config(config: Path | None, changed: bool, init: bool, schema: bool) -> None:
    """Print the effective settings as TOML, without secrets.

    Comments describe each setting, name the settings that are not set and the secrets that are, and list the
    effective threshold and weights of each domain.
    """
    if schema:
        click.echo(json.dumps(settings_schema(), indent=2))
        return
    if init:
        write_first_file(Path(SETTINGS_FILE))
        click.echo(f"wrote {SETTINGS_FILE}")
        return
    settings = load_settings(settings_file(config, connects=False))
    for doubt in doubts_about(settings):
        click.echo(f"warning: {doubt}", err=True)
    click.echo((render_changed if changed else render)(settings), nl=False)


def write_first_file(file: Path) -> None:
    """Write a first settings file, with comments.

    Raises:
        InputError: there is a file, or it cannot be written.
    """
    content = files(__package__).joinpath("first.toml").read_bytes()
    try:
        with file.open("xb") as new:
            new.write(content)
    except FileExistsError:
        raise InputError(f"{file}: is there already, and is kept") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror}") from error


def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema of settings files; each of its properties has a description."""
    schema = Settings.model_json_schema()
    for name, model in sections().items():
        summary, _, _ = (model.__doc__ or "").partition("\n")
        schema["properties"][name].setdefault("description", summary)  # of sections that must be there
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}
