"""``kp-worker sample``."""

from __future__ import annotations

from importlib import resources

import click

_FILES = {
    "traces": "demo/real_traces.jsonl",
    "labels": "demo/real_traces.labels.jsonl",
    "session": "sample/session.jsonl",
    "spans": "sample/spans.json",
    "chat": "sample/chat.json",
}


@click.command()
@click.argument("name", type=click.Choice(list(_FILES)))
def sample(name: str) -> None:
    """Print a sample file to try the other commands with.

    `traces` are the demo's 154 real traces, and `labels` says which of them solved their tasks. `session` is
    a log of Claude Code, `spans` is an agent run in OTLP JSON, and `chat` is a list of OpenAI messages; these
    three are made up.
    """
    file = resources.files("knowledgepulse_worker.tools").joinpath(_FILES[name])
    click.echo(file.read_bytes(), nl=False)
