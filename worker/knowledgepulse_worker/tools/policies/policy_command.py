"""The commands ``kp-worker policy``."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.policy import DIGEST_LENGTH, ROUTES, Policy
from knowledgepulse_worker.settings import doubtful_domains, load_policy, load_settings
from knowledgepulse_worker.terminal.command_group import CommandGroup
from knowledgepulse_worker.terminal.config_option import config_option, settings_file
from knowledgepulse_worker.terminal.lazy_command import LazyCommand
from knowledgepulse_worker.terminal.printable import time_text
from knowledgepulse_worker.tools.policies import command_inputs, policy_output
from knowledgepulse_worker.tools.terminal.arguments import EXISTING, NewFile
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.options import json_lines_option, json_option, with_options
from knowledgepulse_worker.tools.terminal.reports import print_parts, print_report, write_text

if TYPE_CHECKING:
    from knowledgepulse_worker.kafka.policy_topic import KeptPolicy


_OF_THE_CURATOR = (
    LazyCommand(
        "evaluate",
        "knowledgepulse_curator.fitting.evaluate_command:evaluate",
        "Evaluate scores against labels.",
    ),
    LazyCommand(
        "fit",
        "knowledgepulse_curator.fitting.fit_command:fit",
        "Fit learned values to labels, and propose them if the labels support a change.",
    ),
    LazyCommand(
        "label",
        "knowledgepulse_curator.labelling.label_command:label",
        "Label traces in a browser, one at a time, until Ctrl-C.",
    ),
    LazyCommand(
        "prior",
        "knowledgepulse_curator.fitting.prior_command:prior",
        "Propose a learned value from public runs, for a domain without labels.",
    ),
)


@click.group(cls=CommandGroup, commands=_OF_THE_CURATOR)
def policy() -> None:
    """Check, compare, tune, fit, rescore and evaluate policies.

    A policy is the `[policy]` section of a TOML file, such as the worker's settings. The workers keep every
    policy that was ever in force in a topic, by its digest, which is the value of the header `kp-policy`.
    """


@policy.command()
@click.argument("file", type=EXISTING)
def check(file: Path) -> None:
    """Check and print the policy of FILE.

    Prints its digest (the `kp-policy` header), its thresholds and weights by domain, and its changes from the
    KnowledgePulse SDK's policy.
    """
    checked = load_policy(file)
    policy_output.print_policy(checked, f"policy {checked.digest}")
    for doubt in doubtful_domains(checked):
        print_parts(f"note: {doubt}")


@policy.command()
@click.argument("old")
@click.argument("new")
@config_option
def diff(old: str, new: str, config: Path | None) -> None:
    """Describe the changes from the policy OLD to NEW.

    OLD and NEW are files, or digests of policies that were in force.
    """
    before, after = _file_or_kept(old, config), _file_or_kept(new, config)
    head = f"policy {before.digest} → {after.digest}:"
    policy_output.print_changes(before, after, head, "no effect on the score or decision of any trace")


def _file_or_kept(name: str, config: Path | None) -> Policy:
    if Path(name).exists():
        return load_policy(Path(name))
    if not re.fullmatch(f"[0-9a-f]{{4,{DIGEST_LENGTH}}}", name):
        raise InputError(
            f"'{name}' is neither a policy file nor a digest (4 to {DIGEST_LENGTH} hexadecimal digits)"
        )
    return find_policy(_history(config), name).policy


@policy.command()
@click.argument("digest", required=False)
@config_option
def show(digest: str | None, config: Path | None) -> None:
    """Print a policy that was in force.

    DIGEST is the policy's digest, or the beginning of it. By default, the policy that came into force last is
    printed.
    """
    history = _history(config)
    kept = find_policy(history, digest) if digest else history[-1]
    head = f"policy {kept.policy.digest}, in force since {time_text(kept.since_ms)}"
    policy_output.print_policy(kept.policy, head)


@policy.command()
@config_option
@json_lines_option
def history(config: Path | None, as_json: bool) -> None:
    """List the policies that were in force, each with its changes from the one before.

    The first policy is compared with the KnowledgePulse SDK's policy. A policy that came into force more than
    once is listed only with the last time.
    """
    before, unchanged = Policy(), policy_output.SAME_AS_SDK
    for kept in _history(config):
        digest, changes = kept.policy.digest, policy_output.changes(before, kept.policy)
        if as_json:
            click.echo(json.dumps({"since_ms": kept.since_ms, "policy": digest, "changes": changes}))
        else:
            print_parts(f"{time_text(kept.since_ms)}  policy {digest}")
            print_parts(*(f"  {line}" for line in changes or [unchanged]))
        before, unchanged = kept.policy, "scores and decides like the one before"


def _history(config: Path | None) -> list[KeptPolicy]:
    from knowledgepulse_worker.tools.policies.scored_topics import policy_history  # noqa: PLC0415 - keeps `--help` fast

    return asyncio.run(policy_history(load_settings(settings_file(config, connects=True))))


def find_policy(history: Sequence[KeptPolicy], digest: str) -> KeptPolicy:
    """Return the policy whose digest begins like this; raise an InputError if that is not exactly one."""
    matching = [kept_policy for kept_policy in history if kept_policy.policy.digest.startswith(digest)]
    if len(matching) == 1:
        return matching[0]
    digests = ", ".join(kept_policy.policy.digest for kept_policy in matching or history)
    if matching:
        raise InputError(f"{len(matching)} policies begin with '{digest}': {digests}; give more digits")
    raise InputError(f"no policy in force begins with '{digest}'; known: {digests}")


@policy.command()
@command_inputs.source_options
@command_inputs.policy_option
@command_inputs.target_option
@click.option("--threshold", "by_threshold", is_flag=True, help="Propose thresholds instead of a share.")
@command_inputs.plot_option
@command_inputs.output_option
@json_option
def tune(
    given: command_inputs.Inputs,
    target: float,
    by_threshold: bool,
    plot: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Propose what lets a target share of the traces pass: that share, or thresholds.

    Reads scored traces from the workers' topics, or from FILES. FILES contain the output of
    `kp-worker score`, or raw traces, which are scored first. For each domain, prints the distribution of the
    scores, the share of traces that would pass at each threshold, what shares would have let pass in the
    traces' order, and what a lowest novelty would withhold. Then prints a [policy] to review: with the share,
    which holds as scores change, or with thresholds.
    """
    from knowledgepulse_worker.tools.policies import tune, tune_report  # noqa: PLC0415 - keeps `--help` fast

    given.require_other(output)
    active = given.policy
    records = given.comparable()
    tuning = tune.tune(records, active, target, by_threshold=by_threshold)
    if plot:
        from knowledgepulse_worker.tools.policies.plots import save  # noqa: PLC0415
        from knowledgepulse_worker.tools.policies.tune_plot import plot_tuning  # noqa: PLC0415 - matplotlib is slow

        save(plot_tuning(tuning, records), plot)
    words, proposal = tune_report.tuning_tables(tuning), tune.proposed_toml(tuning)
    print_report(tuning, words, as_json=as_json, proposal=proposal, output=output)


@policy.command()
@command_inputs.source_options
@click.option("--policy", "policy_file", type=EXISTING, required=True, help="File with the new policy.")
@with_options(
    *(
        click.option(
            f"--{name}", help=f"Topic to which the {route.participle} are published with their new scores."
        )
        for name, route in ROUTES.items()
    )
)
@click.option("--live", is_flag=True, help="Allow the workers' own topics of scored traces to be named.")
@json_option
def rescore(given: command_inputs.Inputs, live: bool, as_json: bool, **topics: str | None) -> None:
    """Show the effect of another policy on traces that are already scored.

    Reads scored traces from the workers' topics, or from FILES. FILES contain the output of
    `kp-worker score`, or raw traces, which are scored first. Publishes nothing unless a topic is named for
    each decision.
    """
    from knowledgepulse_worker.scoring import rescore_all  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.tune_report import rescored_tables  # noqa: PLC0415 - keeps `--help` fast

    new = given.policy
    names = {decision: topic for decision in ROUTES if (topic := topics[decision]) is not None}
    if not names:
        rescored = rescore_all(given.comparable(), new)
    elif len(names) < len(ROUTES):
        options = " and ".join(f"--{decision}" for decision in ROUTES)
        raise click.UsageError(f"give {options}, since each record goes to one of them")
    elif given.files:
        raise click.UsageError("only records from topics can be published, not lines of files")
    else:
        from knowledgepulse_worker.tools.policies.republish import republish  # noqa: PLC0415

        rescored = asyncio.run(republish(load_settings(given.config), given.period, new, names, live=live))
    print_report(rescored.figures, rescored_tables(rescored), as_json=as_json)


@policy.command()
@command_inputs.source_options
@command_inputs.policy_option
@click.option("--reference", type=EXISTING, help="Compare the traces with this reference.")
@click.option("--accept", type=NewFile(), help="Write the distributions of the traces to this reference.")
@json_option
def drift(given: command_inputs.Inputs, reference: Path | None, accept: Path | None, as_json: bool) -> None:
    """Measure how far the scores have moved since a policy was accepted.

    Reads scored traces as `tune` does. --accept writes their distributions to a reference, which is a file of
    Prometheus rules for the alert KpDrift. --reference prints the Kolmogorov-Smirnov distance from such a
    reference for each domain, by dimension, score and decision. A distance of 0.2 corresponds to a shift by
    half a standard deviation.
    """
    from knowledgepulse_worker.tools.policies import drift  # noqa: PLC0415 - keeps `--help` fast

    if (reference is None) == (accept is None):
        raise click.UsageError("give either --accept FILE or --reference FILE")
    given.require_other(accept)
    accepted, policy = reference and drift.read_reference(reference), given.policy
    current = drift.distributions(given.comparable(), policy)
    if accept:
        write_text(accept, drift.reference_rules(current))
    elif accepted:
        if accepted.policy != current.policy:
            errors.print(
                f"the reference has the scores of policy {printable(accepted.policy)}, not {current.policy}, "
                "so scores and decisions are not compared",
                markup=False,
            )
        drifts = list(drift.drifts(current, accepted))
        print_report(drifts, [drift.drift_table(drifts)], as_json=as_json)
