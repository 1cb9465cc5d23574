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
from knowledgepulse_worker.terminal.progress import errors, topic_progress
from knowledgepulse_worker.terminal.text import time_text
from knowledgepulse_worker.tools.policies.changes import changes, suspicions
from knowledgepulse_worker.tools.policies.drift_command import drift
from knowledgepulse_worker.tools.policies.inputs import (
    labels_to_use,
    read_all_labels,
    read_comparable,
    read_labels,
    read_records,
    settings_and_policy_of,
    settings_of,
)
from knowledgepulse_worker.tools.policies.label_command import label
from knowledgepulse_worker.tools.policies.options import (
    POLICY_FILE,
    SHARE,
    json_option,
    label_options,
    output_option,
    plot_option,
    policy_option,
    reward_option,
    source_options,
    target_option,
)
from knowledgepulse_worker.tools.policies.output import print_changes, print_parts, require_no_input, writing

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
def tune(
    file: Path | None, target: float, plot: Path | None, output: Path | None, as_json: bool, **source: Any
) -> None:
    """Find the thresholds that let a target share of the traces pass.

    Reads scored traces from `contribute` and `rejected`, or from FILES: output of `kp-worker score`, or raw
    traces, which are scored first. Prints for each domain the distribution of the scores and the share that
    passes by threshold; then a [policy] to review.
    """
    from knowledgepulse_worker.tools.policies.tables import tuning_tables  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_worker.tools.policies.tune import proposed_toml  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.tune import tune as run_tune  # noqa: PLC0415

    if output:
        require_no_input(output, [*source["files"], source["config"], file])
    settings, active = settings_and_policy_of(source, file)
    tuning = run_tune(read_comparable(settings, source), active, target)
    if plot:
        from knowledgepulse_worker.tools.policies.plots import plot_tuning, save  # noqa: PLC0415 - matplotlib is slow to import

        with writing(plot):
            save(plot_tuning(tuning), plot)
    if output:
        with writing(output):
            output.write_text(proposed_toml(tuning), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(tuning.as_dict(), indent=2))
        return
    print_parts(*tuning_tables(tuning))
    if not output:
        print_parts("", proposed_toml(tuning).rstrip())


@policy.command()
@source_options
@click.option("--policy", "file", type=POLICY_FILE, required=True, help="The new policy.")
@click.option("--contribute", help="Topic to publish passing records to, with their new score.")
@click.option("--rejected", help="Topic to publish all other records to, with their new score.")
@click.option("--live", is_flag=True, help="Allow the workers' own output topics.")
@json_option
def rescore(
    file: Path, contribute: str | None, rejected: str | None, live: bool, as_json: bool, **source: Any
) -> None:
    """Show the effect of another policy on traces that are already scored.

    Reads scored traces from `contribute` and `rejected`, or from FILES: output of `kp-worker score`, or raw
    traces, which are scored first. Publishes nothing unless --contribute and --rejected name topics.
    """
    from knowledgepulse_worker.scoring import rescore_all  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.tables import rescored_tables  # noqa: PLC0415 - keeps `--help` fast

    new, settings = load_policy(file), settings_of(source)
    if contribute is None and rejected is None:
        rescored = rescore_all(read_comparable(settings, source), new)
    elif contribute is None or rejected is None:
        raise click.UsageError("give both --contribute and --rejected: each record goes to one of them")
    elif source["files"]:
        raise click.UsageError("only records from topics can be published, not lines of files")
    else:
        from knowledgepulse_worker.tools.policies.republish import republish  # noqa: PLC0415
        from knowledgepulse_worker.tools.policies.scored_topics import Period  # noqa: PLC0415

        period = Period(source["since"], source["until"])
        with topic_progress() as progress:
            names = (contribute, rejected)
            rescored = asyncio.run(republish(settings, period, new, names, live=live, progress=progress))
    if as_json:
        click.echo(json.dumps(rescored.as_dict(), indent=2))
    else:
        print_parts(*rescored_tables(rescored))


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
    "--precision",
    type=SHARE,
    default=0.9,
    show_default=True,
    help="Precision to find a threshold for.",
)
@reward_option
@plot_option
@json_option
def evaluate(
    policy_files: tuple[Path, ...],
    precision: float,
    min_reward: float,
    plot: Path | None,
    as_json: bool,
    **source: Any,
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
    from knowledgepulse_worker.tools.policies.agreement import agreements  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_worker.tools.policies.compare import compare, comparison_tables  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.evaluate import evaluate as run_evaluate  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.tables import evaluation_tables  # noqa: PLC0415

    settings, active = settings_and_policy_of(source, policy_files[0] if policy_files else None)
    policies = [active, *map(load_policy, policy_files[1:])]
    given = read_all_labels(settings, source, required=True)
    agreed, labels = list(agreements(given, min_reward)), labels_to_use(given)
    records = read_records(settings, source)
    evaluation = run_evaluate(records, labels, active, precision=precision, min_reward=min_reward)
    compared = compare(records, labels, policies, min_reward=min_reward) if len(policies) > 1 else []
    if plot:
        from knowledgepulse_worker.tools.policies.plots import plot_evaluation, save  # noqa: PLC0415 - matplotlib is slow to import

        with writing(plot):
            save(plot_evaluation(evaluation), plot)
    if as_json:
        report = evaluation.as_dict() | {
            "agreements": [asdict(one) for one in agreed],
            "compared": [asdict(one) for one in compared],
        }
        click.echo(json.dumps(report, indent=2))
    else:
        print_parts(*map(str, agreed), *evaluation_tables(evaluation), *comparison_tables(compared))


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
def fit(
    file: Path | None,
    target: float,
    min_reward: float,
    outcome_confidence: bool,
    output: Path | None,
    as_json: bool,
    **source: Any,
) -> None:
    """Fit weights to labels, and propose them if the labels support a change.

    Reads scored traces as `tune` does, and labels as `evaluate` does. Fits a logistic regression whose
    coefficients are 0 or more and are drawn to the weights in force, domain by domain. Prints, on folds of
    whole groups that the weights were not fitted to, what the weights in force, the fitted ones and the
    single best dimension are worth. Then a [policy] to review, with thresholds for the target share.
    """
    from knowledgepulse_worker.tools.policies.fit import fit as run_fit  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_worker.tools.policies.fit_report import fit_tables, fitted_toml  # noqa: PLC0415

    if output:
        require_no_input(output, [*source["files"], *source["label_files"], source["config"], file])
    settings, active = settings_and_policy_of(source, file)
    labels = read_labels(settings, source, required=True)
    fitted = run_fit(
        read_comparable(settings, source, content=True),
        labels,
        active,
        target=target,
        min_reward=min_reward,
        outcome_confidence=outcome_confidence,
    )
    if output:
        with writing(output):
            output.write_text(fitted_toml(fitted), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(fitted.as_dict(), indent=2))
        return
    print_parts(*fit_tables(fitted))
    if not output:
        print_parts("", fitted_toml(fitted).rstrip())


@policy.command()
@source_options
@label_options
@policy_option
@reward_option
@click.option(
    "--count",
    type=click.IntRange(1, sys.maxsize),
    default=20,
    show_default=True,
    help="Maximum number of traces.",
)
def queue(file: Path | None, min_reward: float, count: int, **source: Any) -> None:
    """Print the traces with the most informative labels, one JSON object per line.

    These are unlabelled traces on whose decision the policy and weights fitted to the labels so far disagree,
    or else that are close to their threshold. None is a near copy of another. Domains with fewer labels come
    first. Each has its objective, steps and result, shortened, and what speaks against it.
    """
    from knowledgepulse_worker.tools.policies.advice import usual_lengths  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_worker.tools.policies.labels import label_of  # noqa: PLC0415
    from knowledgepulse_worker.tools.policies.queue import labelling_queue  # noqa: PLC0415

    settings, active = settings_and_policy_of(source, file)
    labels = read_labels(settings, source, required=False)
    records = read_records(settings, source)
    if labels and not any(label_of(record, labels) for record in records):
        errors.print(f"none of the {len(labels)} labels matches one of the {len(records)} traces")
    usual = usual_lengths(records)
    for one in labelling_queue(records, labels, active, count, min_reward):
        click.echo(json.dumps(one.as_dict(usual)))
