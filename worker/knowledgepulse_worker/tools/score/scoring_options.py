"""The options that say how a command scores, without what scores: `--help` is quick."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.terminal.lazy_command import imported
from knowledgepulse_worker.tools.terminal.options import embedder_option, key_option, with_options

Command = Callable[..., Any]

_EMBEDDING = {"embedder": "backend", "max_tokens": "max_tokens", "truncation": "truncation", "text": "text"}
"""The settings of embedding that options override, by option."""


def scoring_options(command: Command) -> Command:
    """Add the options that say how to score; the command receives them as the `Scoring` ``given``."""

    @wraps(command)
    def bundled(**values: Any) -> Any:
        scoring = imported("knowledgepulse_worker.tools.score.scoring:Scoring")
        embedding = {setting: values.pop(option) for option, setting in _EMBEDDING.items()}
        given = {name: values.pop(name) for name in scoring.__dataclass_fields__ if name in values}
        return command(given=scoring(embedding=embedding, **given), **values)

    add = with_options(
        config_option,
        embedder_option("Override embedding.backend."),
        click.option("--max-tokens", type=int, help="Override embedding.max_tokens."),
        click.option(
            "--truncation", type=click.Choice(["standard", "sdk"]), help="Override embedding.truncation."
        ),
        click.option("--text", type=click.Choice(["sdk", "agent", "parts"]), help="Override embedding.text."),
        click.option(
            "--partitions",
            type=click.IntRange(1, 10_000),
            default=1,
            help="Score as in a topic with this number of partitions, where a trace is compared only with "
            "its own.",
        ),
        key_option("Field that determines the partition, as in `kp-worker publish`."),
        click.option(
            "--json/--table",
            "as_json",
            default=None,
            help="Print one JSON object per trace, or a table of the best and a report. Without either, the "
            "table is for terminals.",
        ),
        click.option(
            "--traces",
            is_flag=True,
            help="Print JSON objects with the whole trace, for `kp-worker export`.",
        ),
    )
    return add(bundled)
