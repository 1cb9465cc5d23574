"""``kp-worker assemble``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.logs import configure, errors_logged
from knowledgepulse_worker.settings import load_settings
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.tools.convert.conversion_options import conversion_options
from knowledgepulse_worker.tools.convert.convert_command import read_options


@click.command()
@config_option
@conversion_options
def assemble(config: Path | None, conversion: dict[str, Any]) -> None:
    """Assemble agent runs from OpenTelemetry spans in Kafka.

    Reads the topic to which the Collector's Kafka exporter writes, converts each complete run as `kp-worker
    convert` does, and publishes it to the raw topic exactly once. Late spans go to a separate topic.

    Runs until SIGTERM, SIGHUP or Ctrl-C. It also ends if no broker can be reached, so let an orchestrator
    restart it.
    """
    settings = load_settings(config)
    options = read_options(**conversion)
    with extra("worker"):
        from knowledgepulse_worker.tools.assemble.run_assembler import run_assembler  # noqa: PLC0415 - `--help` needs no extra

    configure(settings.log)
    with errors_logged():
        run_assembler(settings, options)
