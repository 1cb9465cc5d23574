"""The options of a conversion, without what converts: a hook is quick."""

from __future__ import annotations

import click

from knowledgepulse_worker.tools.terminal.arguments import EXISTING, LazyChoice
from knowledgepulse_worker.tools.terminal.options import with_options

FORMAT = LazyChoice("knowledgepulse_schemas.convert:INPUT_FORMATS", "auto")
_TRACE = "knowledgepulse_schemas.trace"

conversion_options = with_options(
    click.option(
        "--domain",
        metavar="[NAME=]DOMAIN",
        multiple=True,
        help="Task domain of the traces, or of those of an agent, service, project or format. Repeatable.",
    ),
    click.option("--domain-map", type=EXISTING, help="TOML file of such task domains."),
    click.option(
        "--outcomes",
        type=EXISTING,
        help="JSON Lines file of how runs ended: the run's or trace's `id`, `success` and `confidence`.",
    ),
    click.option(
        "--visibility",
        type=LazyChoice(f"{_TRACE}:Visibility"),
        help="Visibility of the traces; private by default.",
    ),
    click.option(
        "--privacy-level",
        type=LazyChoice(f"{_TRACE}:PrivacyLevel"),
        help="Privacy level of the traces; private by default. Private traces never leave the organization.",
    ),
    click.option(
        "--keep-prompt",
        is_flag=True,
        help="Keep system text and tool definitions, as task.system and task.tools.",
    ),
    click.option(
        "--per-request", is_flag=True, help="Make one trace per user request instead of one per run."
    ),
    click.option(
        "--objective",
        metavar="TEXT",
        help="Objective of runs that contain no user message, such as streams without a prompt.",
    ),
)
