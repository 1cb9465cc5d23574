"""The command ``kp-worker policy label``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knowledgepulse_worker.terminal.progress import errors
from knowledgepulse_worker.tools.policies.inputs import read_labels, settings_and_policy_of
from knowledgepulse_worker.tools.policies.options import NewFile, label_options, policy_option, source_options
from knowledgepulse_worker.tools.policies.output import require_no_input

if TYPE_CHECKING:
    from knowledgepulse_worker.policy import Policy
    from knowledgepulse_worker.tools.policies.labelling.session import Session


def _labeller(_ctx: click.Context, _param: click.Parameter, name: str) -> str:
    if not name.strip() or not name.isprintable():  # a lone surrogate, of bytes that are no text, is neither
        raise click.BadParameter("a name has at least one character, and only printable ones")
    if name.startswith("judge:"):
        raise click.BadParameter("names that begin with judge: are those of models")
    return name.strip()


@click.command()
@source_options
@label_options
@policy_option
@click.option("--output", type=NewFile(), required=True, help="File of labels to add to.")
@click.option("--by", required=True, callback=_labeller, help="Who labels: the `source` of the labels.")
@click.option(
    "--count", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number of traces."
)
@click.option(
    "--port", type=click.IntRange(1, 65_535), default=6068, show_default=True, help="Port on 127.0.0.1."
)
def label(file: Path | None, output: Path, by: str, count: int, port: int, **source: Any) -> None:
    """Label traces in a browser, one at a time, until Ctrl-C.

    Reads traces from `contribute` and `rejected`, or raw traces from FILES, and shows those of `policy queue`
    that have no label in --labels. Nothing leaves the machine: the page is served on 127.0.0.1, at an address
    that only this command prints. Each label is on disk before the next trace; the same command continues
    after the last one. Two people who label the same traces give different names and files.
    """
    from knowledgepulse_worker.tools.policies.labelling.label_file import open_labels  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_worker.tools.policies.labelling.reading import traces_to_label  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.labelling.session import Session  # noqa: PLC0415

    require_no_input(output, [*source["files"], source["config"], file])
    settings, policy = settings_and_policy_of(source, file)
    labels = read_labels(settings, source, required=False)
    with open_labels(output) as labelled:
        if labelled.removed:
            errors.print(f"removed a half-written line of {output}: {labelled.removed}", markup=False)
        traces = traces_to_label(settings, source, labels, policy, count)
        asyncio.run(_serve(Session(traces, labelled, by), policy, port))


async def _serve(session: Session, policy: Policy, port: int) -> None:
    from knowledgepulse_worker.tools.policies.labelling.server import serving_labels  # noqa: PLC0415 - keeps `--help` fast

    async with serving_labels(session, policy, port) as address:
        click.echo(f"label at {address}")
        await asyncio.Event().wait()
