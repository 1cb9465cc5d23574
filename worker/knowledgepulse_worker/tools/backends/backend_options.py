"""The options of commands that use a backend."""

from __future__ import annotations

import click

from knowledgepulse_worker.tools.terminal.arguments import EXISTING
from knowledgepulse_worker.tools.terminal.options import with_options

backend_options = with_options(
    click.option("--project", default="default", help="The backend's project, or MLflow's experiment."),
    click.option(
        "--key-file",
        type=EXISTING,
        help="File with the backend's key: for MLflow a token or user:password, for Langfuse public:secret. "
        "The default are the variables that the backend's own client reads.",
    ),
)
