"""The command ``kp-worker policy prior``."""

from __future__ import annotations

from pathlib import Path

import click

from knowledgepulse_worker.tools.policies.command_inputs import (
    Inputs,
    output_option,
    policy_option,
    source_options,
    target_option,
)
from knowledgepulse_worker.tools.terminal.arguments import SHARE
from knowledgepulse_worker.tools.terminal.reports import print_report


@click.command()
@click.argument("name", metavar="NAME")
@source_options
@policy_option
@target_option
@click.option("--share", type=SHARE, default=1.0, help="Share of the learned value in the score.")
@output_option
def prior(name: str, given: Inputs, target: float, share: float, output: Path | None) -> None:
    """Propose a learned value from public runs, for a domain without labels.

    NAME is that of a prior: `code-prior-1`. Its weights were fitted to public runs of agents that write code.
    Reads scored traces as `tune` does, and computes the means and deviations of their facts, which need no
    labels; at least 50 traces of the domain are needed. Then prints a [policy] to review, with the target
    share. Once you have labels, `policy evaluate` tells whether it holds, and `policy fit` fits your own.
    """
    from knowledgepulse_curator.fitting import prior  # noqa: PLC0415 - keeps `--help` fast

    given.require_other(output)
    if (known := prior.priors().get(name)) is None:
        raise click.UsageError(f"there is no prior {name}; known: {', '.join(prior.priors())}")
    proposal = prior.prior_toml(known, given.comparable(), given.policy, target=target, share=share)
    print_report(None, [], as_json=False, proposal=proposal, output=output)
