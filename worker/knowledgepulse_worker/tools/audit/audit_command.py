"""``kp-worker audit``."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

import click

from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.settings import load_settings
from knowledgepulse_worker.terminal.config_option import config_option, settings_file
from knowledgepulse_worker.tools.audit import audit as run_audit
from knowledgepulse_worker.tools.audit.audit_report_text import words_of
from knowledgepulse_worker.tools.terminal.console import topic_progress
from knowledgepulse_worker.tools.terminal.options import json_option
from knowledgepulse_worker.tools.terminal.reports import print_report


@click.command()
@config_option
@json_option
def audit(config: Path | None, as_json: bool) -> None:
    """Check that every record has its output and that every output is right.

    Reads the raw topic, the outputs and the ledger's changelog up to their current ends, with the worker's
    settings; workers may be running. Every committed record must have an output that equals the record except
    for the score. Scores, novelty and decisions are recomputed. If an output is missing, repeated or wrong,
    the exit status is 1; identical copies that a release before 0.3.0 published are only counted.
    """
    settings = load_settings(settings_file(config, connects=True))
    embedder = partial(load_embedder, settings.embedding, settings.cache)
    with topic_progress() as progress:
        report = asyncio.run(run_audit(settings, embedder=embedder, progress=progress))
    print_report(report.as_dict(), words_of(report), as_json=as_json)
    sys.exit(0 if report.ok else 1)
