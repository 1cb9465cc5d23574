"""The command ``kp-worker policy drift``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from knowledgepulse_worker.terminal.progress import errors
from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.policies.inputs import read_comparable, settings_and_policy_of
from knowledgepulse_worker.tools.policies.options import (
    POLICY_FILE,
    NewFile,
    json_option,
    policy_option,
    source_options,
)
from knowledgepulse_worker.tools.policies.output import print_parts, require_no_input, writing

if TYPE_CHECKING:
    from knowledgepulse_worker.tools.policies.drift import Drift


@click.command()
@source_options
@policy_option
@click.option("--reference", type=POLICY_FILE, help="Compare these traces with the ones of this reference.")
@click.option("--accept", type=NewFile(), help="Write the distributions of these traces as the reference.")
@json_option
def drift(
    file: Path | None, reference: Path | None, accept: Path | None, as_json: bool, **source: Any
) -> None:
    """Measure how far scores have moved from those that a policy was accepted on.

    Reads scored traces as `tune` does. --accept keeps them as the reference, a file of Prometheus rules for
    the alert KpDrift. --reference prints the Kolmogorov-Smirnov distance from it by domain, for each
    dimension, the score and the decision: 0.2 is a shift by half a standard deviation.
    """
    from knowledgepulse_worker.tools.policies import drift as module  # noqa: PLC0415 - keeps `--help` fast

    if (reference is None) == (accept is None):
        raise click.UsageError("give either --accept FILE or --reference FILE")
    if accept:
        require_no_input(accept, [*source["files"], source["config"], file])
    accepted = reference and module.read_reference(reference)
    settings, policy = settings_and_policy_of(source, file)
    current = module.window(read_comparable(settings, source), policy)
    if accept:
        with writing(accept):
            accept.write_text(module.reference_rules(current), encoding="utf-8")
    elif accepted:
        if accepted.policy != current.policy:
            errors.print(
                f"the reference is of policy {printable(accepted.policy)}, not {current.policy}: scores and "
                "decisions are not compared",
                markup=False,
            )
        found = list(module.drifts(current, accepted))
        if as_json:
            click.echo(json.dumps([asdict(one) for one in found], indent=2))
        else:
            print_parts(_table(found))


def _table(found: list[Drift]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("domain", "dimension", "traces", "reference", "distance", "drift above", ""):
        table.add_column(name)
    for one in found:
        figures = (one.traces, one.reference, "-" if one.distance is None else f"{one.distance:.2f}")
        words = printable(one.domain), one.dimension.replace("_", " "), *map(str, figures)
        table.add_row(*words, f"{one.limit:.2f}", "drifted" if one.drifted else "")
    return table
