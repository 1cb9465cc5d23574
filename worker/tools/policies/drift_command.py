"""The command ``kp-worker policy drift``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from knowledgepulse_worker.terminal.progress import errors
from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.policies.inputs import Inputs
from knowledgepulse_worker.tools.policies.options import (
    POLICY_FILE,
    NewFile,
    json_option,
    policy_option,
    source_options,
)
from knowledgepulse_worker.tools.policies.output import new_table, print_report, write

if TYPE_CHECKING:
    from knowledgepulse_worker.tools.policies.drift import Drift


@click.command()
@source_options
@policy_option
@click.option("--reference", type=POLICY_FILE, help="Compare these traces with the ones of this reference.")
@click.option("--accept", type=NewFile(), help="Write the distributions of these traces as the reference.")
@json_option
def drift(given: Inputs, reference: Path | None, accept: Path | None, as_json: bool) -> None:
    """Measure how far scores have moved from those that a policy was accepted on.

    Reads scored traces as `tune` does. --accept keeps them as the reference, a file of Prometheus rules for
    the alert KpDrift. --reference prints the Kolmogorov-Smirnov distance from it by domain, for each
    dimension, the score and the decision: 0.2 is a shift by half a standard deviation.
    """
    from knowledgepulse_worker.tools.policies import drift  # noqa: PLC0415 - keeps `--help` fast

    if (reference is None) == (accept is None):
        raise click.UsageError("give either --accept FILE or --reference FILE")
    given.require_other(accept)
    accepted, policy = reference and drift.read_reference(reference), given.policy
    current = drift.window(given.comparable(), policy)
    if accept:
        write(accept, drift.reference_rules(current))
    elif accepted:
        if accepted.policy != current.policy:
            errors.print(
                f"the reference is of policy {printable(accepted.policy)}, not {current.policy}: scores and "
                "decisions are not compared",
                markup=False,
            )
        found = list(drift.drifts(current, accepted))
        print_report([asdict(one) for one in found], [_table(found)], as_json=as_json)


def _table(found: list[Drift]) -> Table:
    table = new_table("domain", "dimension", "traces", "reference", "distance", "drift above", "")
    for one in found:
        figures = (one.traces, one.reference, "-" if one.distance is None else f"{one.distance:.2f}")
        words = printable(one.domain), one.dimension.replace("_", " "), *map(str, figures)
        table.add_row(*words, f"{one.limit:.2f}", "drifted" if one.drifted else "")
    return table
