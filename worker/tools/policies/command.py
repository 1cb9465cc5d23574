"""The commands ``kp-worker policy``."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import load_policy, load_settings
from knowledgepulse_worker.terminal.options import config_option
from knowledgepulse_worker.terminal.progress import errors
from knowledgepulse_worker.terminal.text import time_text
from knowledgepulse_worker.tools.policies.changes import changes, suspicions
from knowledgepulse_worker.tools.policies.drift_command import drift
from knowledgepulse_worker.tools.policies.inputs import Inputs, labels_to_use
from knowledgepulse_worker.tools.policies.label_command import label
from knowledgepulse_worker.tools.policies.options import (
    POLICY_FILE,
    SHARE,
    count_option,
    json_option,
    label_options,
    output_option,
    plot_option,
    policy_option,
    reward_option,
    source_options,
    target_option,
)
from knowledgepulse_worker.tools.policies.output import print_changes, print_parts, print_report

if TYPE_CHECKING:
    from knowledgepulse_worker.kafka.policy_topic import KeptPolicy


@click.group()
def policy() -> None:
    """Check, compare, tune, fit, rescore and evaluate policies.

    A policy is the `[policy]` section of a TOML file such as the worker's settings. The workers keep each one
    that was ever in force in a topic, by its digest: the value of the header `kp-policy`.
    """


policy.add_command(drift)
policy.add_command(label)


@policy.command()
@click.argument("file", type=POLICY_FILE)
def check(file: Path) -> None:
    """Check and print the policy of FILE.

    Prints its digest (the `kp-policy` header), its thresholds and weights by domain, and its changes from the
    KnowledgePulse SDK's policy.
    """
    from knowledgepulse_worker.tools.policies.tables import policy_table  # noqa: PLC0415 - keeps `--help` fast

    checked = load_policy(file)
    print_parts(f"policy {checked.digest}", policy_table(checked), "")
    print_changes(Policy(), checked, "Changes from the SDK's policy:")
    for suspicion in suspicions(checked):
        print_parts(f"note: {suspicion}")


@policy.command()
@click.argument("old")
@click.argument("new")
@config_option
def diff(old: str, new: str, config: Path | None) -> None:
    """Describe the changes from the policy OLD to NEW.

    Each is a file, or the digest of a policy that was in force.
    """
    before, after = _file_or_kept(old, config), _file_or_kept(new, config)
    print_changes(before, after, f"policy {before.digest} → {after.digest}:")


def _file_or_kept(name: str, config: Path | None) -> Policy:
    if Path(name).exists():
        return load_policy(Path(name))
    from knowledgepulse_worker.tools.policies.history import find_policy  # noqa: PLC0415 - keeps `--help` fast

    if not re.fullmatch("[0-9a-f]{4,12}", name):
        raise InputError(f"{name}: neither a file nor a digest, which has 4 to 12 hexadecimal digits")
    return find_policy(_history(config), name).policy


@policy.command()
@click.argument("digest", required=False)
@config_option
def show(digest: str | None, config: Path | None) -> None:
    """Print a policy that was in force.

    DIGEST is its digest or the beginning of it. Without DIGEST, prints the one that came into force last.
    """
    from knowledgepulse_worker.tools.policies.history import find_policy  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_worker.tools.policies.tables import policy_table  # noqa: PLC0415

    history = _history(config)
    kept = find_policy(history, digest) if digest else history[-1]
    print_parts(f"policy {kept.policy.digest}, in force since {time_text(kept.since_ms)}")
    print_parts(policy_table(kept.policy), "")
    print_changes(Policy(), kept.policy, "Changes from the SDK's policy:")


@policy.command()
@config_option
def history(config: Path | None) -> None:
    """List the policies that were in force, each with its changes from the one before.

    A policy that came into force more than once is listed with the last time.
    """
    before = Policy()
    for kept in _history(config):
        print_parts(f"{time_text(kept.since_ms)}  policy {kept.policy.digest}")
        print_parts(*(f"  {line}" for line in changes(before, kept.policy) or ["no change"]))
        before = kept.policy


def _history(config: Path | None) -> list[KeptPolicy]:
    from knowledgepulse_worker.tools.policies.history import policy_history  # noqa: PLC0415 - keeps `--help` fast

    return asyncio.run(policy_history(load_settings(config)))


@policy.command()
@source_options
@policy_option
@target_option
@plot_option
@output_option
@json_option
def tune(given: Inputs, target: float, plot: Path | None, output: Path | None, as_json: bool) -> None:
    """Find the thresholds that let a target share of the traces pass.

    Reads scored traces from `contribute` and `rejected`, or from FILES: output of `kp-worker score`, or raw
    traces, which are scored first. Prints for each domain the distribution of the scores and the share that
    passes by threshold; then a [policy] to review.
    """
    from knowledgepulse_worker.tools.policies import tables, tune  # noqa: PLC0415 - keeps `--help` fast

    given.require_other(output)
    active = given.policy
    tuning = tune.tune(given.comparable(), active, target)
    if plot:
        from knowledgepulse_worker.tools.policies.plots import plot_tuning, save  # noqa: PLC0415 - matplotlib is slow to import

        save(plot_tuning(tuning), plot)
    proposal = tune.proposed_toml(tuning)
    print_report(
        tuning.as_dict(), tables.tuning_tables(tuning), as_json=as_json, proposal=proposal, output=output
    )


@policy.command()
@source_options
@click.option("--policy", "policy_file", type=POLICY_FILE, required=True, help="The new policy.")
@click.option("--contribute", help="Topic to publish passing records to, with their new score.")
@click.option("--rejected", help="Topic to publish all other records to, with their new score.")
@click.option("--live", is_flag=True, help="Allow the workers' own output topics.")
@json_option
def rescore(given: Inputs, contribute: str | None, rejected: str | None, live: bool, as_json: bool) -> None:
    """Show the effect of another policy on traces that are already scored.

    Reads scored traces from `contribute` and `rejected`, or from FILES: output of `kp-worker score`, or raw
    traces, which are scored first. Publishes nothing unless --contribute and --rejected name topics.
    """
    from knowledgepulse_worker.scoring import rescore_all  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.tables import rescored_tables  # noqa: PLC0415 - keeps `--help` fast

    new = given.policy
    if contribute is None and rejected is None:
        rescored = rescore_all(given.comparable(), new)
    elif contribute is None or rejected is None:
        raise click.UsageError("give both --contribute and --rejected: each record goes to one of them")
    elif given.files:
        raise click.UsageError("only records from topics can be published, not lines of files")
    else:
        from knowledgepulse_worker.tools.policies.republish import republish  # noqa: PLC0415

        names = (contribute, rejected)
        rescored = asyncio.run(republish(given.settings, given.period, new, names, live=live))
    print_report(rescored.as_dict(), rescored_tables(rescored), as_json=as_json)


@policy.command()
@source_options
@label_options
@click.option(
    "--policy",
    "policy_files",
    type=POLICY_FILE,
    multiple=True,
    help="Policy file instead of the settings' policy. Repeatable: others are compared with the first.",
)
@click.option(
    "--precision", type=SHARE, default=0.9, show_default=True, help="Precision to find a threshold for."
)
@reward_option
@plot_option
@json_option
def evaluate(
    given: Inputs,
    policy_files: tuple[Path, ...],
    precision: float,
    min_reward: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Evaluate scores against labels.

    Reads scored traces as `tune` does. Prints for each domain the AUC of the score and of each dimension,
    precision and recall by threshold, and as advice what cheap features tell; then a verdict: whether the
    score tells these labels apart, and which thresholds are worth it. Warns if the score contains the
    label. Labels of one `group`, such as the trials of one task, are resampled together; of these groups, it
    prints how many the passing traces cover, and how many as many random ones would. With several policies,
    it prints the differences of the others from the first, each with its interval. Where several sources
    label the same traces, it prints how far they agree; the last label counts, but no model's where
    there are people's.
    """
    from knowledgepulse_worker.tools.policies import agreement, compare, evaluate, tables  # noqa: PLC0415 - keeps `--help` fast

    policies = [load_policy(file) for file in policy_files] or [given.policy]
    every = given.all_labels()
    agreed, labels = list(agreement.agreements(every, min_reward)), labels_to_use(every)
    records = given.records()
    found = evaluate.evaluate(records, labels, policies[0], precision=precision, min_reward=min_reward)
    compared = compare.compare(records, labels, policies, min_reward=min_reward) if policies[1:] else []
    if plot:
        from knowledgepulse_worker.tools.policies.plots import plot_evaluation, save  # noqa: PLC0415 - matplotlib is slow to import

        save(plot_evaluation(found), plot)
    others = {"agreements": [asdict(one) for one in agreed], "compared": [asdict(one) for one in compared]}
    words = (*map(str, agreed), *tables.evaluation_tables(found), *compare.comparison_tables(compared))
    print_report(found.as_dict() | others, words, as_json=as_json)


@policy.command()
@source_options
@label_options
@policy_option
@target_option
@reward_option
@click.option(
    "--outcome-confidence",
    is_flag=True,
    help="Fit the weight of outcome confidence too. Labels that depend on the outcome make it meaningless.",
)
@output_option
@json_option
def fit(given: Inputs, output: Path | None, as_json: bool, **options: Any) -> None:
    """Fit weights to labels, and propose them if the labels support a change.

    Reads scored traces as `tune` does, and labels as `evaluate` does. Fits a logistic regression whose
    coefficients are 0 or more and are drawn to the weights in force, domain by domain. Prints, on folds of
    whole groups that the weights were not fitted to, what the weights in force, the fitted ones and the
    single best dimension are worth. Then a [policy] to review, with thresholds for the target share.
    """
    from knowledgepulse_worker.tools.policies import fit, fit_report  # noqa: PLC0415 - keeps `--help` fast

    given.require_other(output, *given.label_files)
    active, labels = given.policy, given.labels()
    fitted = fit.fit(given.comparable(content=True), labels, active, **options)
    proposal = fit_report.fitted_toml(fitted)
    print_report(
        fitted.as_dict(), fit_report.fit_tables(fitted), as_json=as_json, proposal=proposal, output=output
    )


@policy.command()
@source_options
@label_options
@policy_option
@reward_option
@count_option(20, sys.maxsize)
def queue(given: Inputs, min_reward: float, count: int) -> None:
    """Print the traces with the most informative labels, one JSON object per line.

    These are unlabelled traces on whose decision the policy and weights fitted to the labels so far disagree,
    or else that are close to their threshold. None is a near copy of another. Domains with fewer labels come
    first. Each has its objective, steps and result, shortened, and what speaks against it.
    """
    from knowledgepulse_worker.tools.policies.advice import usual_lengths  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_worker.tools.policies.labels import label_of  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.queue import labelling_queue  # noqa: PLC0415

    active, labels, records = given.policy, given.labels(required=False), given.records()
    if labels and not any(label_of(record, labels) for record in records):
        errors.print(f"none of the {len(labels)} labels matches one of the {len(records)} traces")
    usual = usual_lengths(records)
    for one in labelling_queue(records, labels, active, count, min_reward):
        click.echo(json.dumps(one.as_dict(usual)))
