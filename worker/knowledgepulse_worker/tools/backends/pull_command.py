"""``kp-worker pull``."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from knowledgepulse_worker.message_text import counted
from knowledgepulse_worker.settings import load_settings
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.tools.backends.all_backends import BACKENDS, connected
from knowledgepulse_worker.tools.backends.backend_options import (
    KEY_VARIABLES,
    backend_options,
    page_option,
)
from knowledgepulse_worker.tools.backends.pull_output import (
    FileOutput,
    PullOutput,
    StandardOutput,
    file_name,
)
from knowledgepulse_worker.tools.backends.pull_runs import Pull, PullRules
from knowledgepulse_worker.tools.backends.pull_state import PullState, source_name
from knowledgepulse_worker.tools.backends.topic_output import topic_name, topic_output
from knowledgepulse_worker.tools.convert.conversion_options import conversion_options
from knowledgepulse_worker.tools.convert.convert_command import (
    ConversionReport,
    read_options,
)
from knowledgepulse_worker.tools.terminal.arguments import Moment, milliseconds
from knowledgepulse_worker.tools.terminal.console import errors, tell
from knowledgepulse_worker.tools.terminal.options import key_option


@click.command()
@click.argument("backend", type=click.Choice([*BACKENDS]))
@click.argument("url")
@config_option
@backend_options
@page_option
@click.option("--agent", help="Pull only the runs of this agent.")
@click.option(
    "--since", type=Moment(), help="The first pull reads only runs that started at this time or later."
)
@click.option("--until", type=Moment(), help="Pull only runs that started before this time.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that remembers which runs were pulled, so that the next pull takes only the others.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to append the traces to, instead of standard output.",
)
@click.option("--publish", "publishes", is_flag=True, help="Publish the traces to the raw topic.")
@key_option("Record key, as in `kp-worker publish`.")
@click.option(
    "--settle",
    type=click.IntRange(0, 86_400),
    default=30,
    help="Seconds after its end for which parts of a run may arrive; then it is pulled.",
)
@click.option(
    "--late",
    type=click.IntRange(0, 31_536_000),
    default=3600,
    help="Seconds for which the next pull looks back for runs that arrived late. A run that has shown no "
    "sign of life for so long is pulled as it is.",
)
@conversion_options
def pull(backend: str, url: str, **options: Any) -> None:
    """Pull the runs of BACKEND at URL, and convert them to traces, one JSON object per line.

    With `--state`, each pull takes the runs that are new: also those that arrived late or ended since. With
    `--output` or `--publish`, a crash at any time loses and repeats nothing; the next pull completes it. With
    `--publish`, that holds for consumers of committed records, such as workers.

    Runs that have not ended wait for the next pull. Values for which traces have no field are reported, as by
    `kp-worker convert`.
    """
    if options["publishes"] and options["output"] is not None:
        raise click.UsageError("--publish and --output exclude each other: use one of them")
    report = ConversionReport()
    waiting = asyncio.run(_pull(backend, url, report, options))
    report.show()
    if waiting:
        errors.print(
            f"{counted(waiting, 'run')} not taken yet: the next pull takes those that have ended by then"
        )
    sys.exit(1 if report.failed else 0)


pull.help = f"{cleandoc(pull.help or '')}\n\nThe backend's key is read from {KEY_VARIABLES}."


async def _pull(backend: str, url: str, report: ConversionReport, options: dict[str, Any]) -> int:
    """Pull once; return the number of runs that were left for the next pull."""
    state = PullState(options["state"], source_name(backend, url, options["project"]))
    async with AsyncExitStack() as stack:
        stack.enter_context(state)
        source = await stack.enter_async_context(
            connected(
                backend, url, options["project"], options["key_file"], max_bytes=options["max_page"] * 2**20
            )
        )
        output = await _output(state, stack, report, options)
        state.begin(output.name, output.mark)
        rules = PullRules(
            read_options(**options["conversion"]),
            since_ms=milliseconds(options["since"]),
            until_ms=milliseconds(options["until"]),
            agent=options["agent"],
            settle_ms=options["settle"] * 1000,
            late_ms=options["late"] * 1000,
        )
        pulling = Pull(
            source, state, rules, report, lambda run, problem: tell(f"{run}: not converted: {problem}")
        )
        async for page in pulling.pages():
            await output.write(page.traces, partial(state.take, page.listings))
        state.finish(pulling.next_since_ms)
    return pulling.waiting


async def _output(
    state: PullState, stack: AsyncExitStack, report: ConversionReport, options: dict[str, Any]
) -> PullOutput:
    path: Path | None = options["output"]
    if path is not None:
        return FileOutput(path, state.interrupted(file_name(path)))
    if not options["publishes"]:
        state.interrupted(StandardOutput.name)
        return StandardOutput()

    def refuse(trace_id: str, problem: str) -> None:
        report.failed += 1
        tell(f"{trace_id}: not published: {problem}")

    settings = load_settings(options["config"])
    state.interrupted(topic_name(settings.topics.raw))
    return await stack.enter_async_context(topic_output(settings, state.id, options["key"], refuse))
