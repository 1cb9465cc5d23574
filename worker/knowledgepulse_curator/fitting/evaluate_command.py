"""The command ``kp-worker policy evaluate``."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex

import click

from knowledgepulse_curator.labels.labelled_inputs import (
    BELOW_ONE,
    LabelledInputs,
    MinRewards,
    judged_source_options,
    labels_to_use,
    reward_option,
)
from knowledgepulse_curator.labels.labels import agreement_lines, agreements
from knowledgepulse_worker.settings import load_policy
from knowledgepulse_worker.tools.policies.command_inputs import plot_option
from knowledgepulse_worker.tools.terminal.arguments import EXISTING, NumberInRange
from knowledgepulse_worker.tools.terminal.options import json_option
from knowledgepulse_worker.tools.terminal.reports import plain, print_report

ODDS = NumberInRange(0, min_open=True)


@click.command()
@judged_source_options
@click.option(
    "--policy",
    "policy_files",
    type=EXISTING,
    multiple=True,
    help="Policy file to use instead of the settings' policy. Repeatable: the others are compared with the "
    "first.",
)
@click.option(
    "--promise",
    "--precision",
    "least",
    type=BELOW_ONE,
    help="Say how much may pass so that at least this part of it is worth keeping, with a confidence of 90%. "
    "(--precision is its former name, until 0.7.0.)",
)
@click.option(
    "--feedback-odds",
    "odds",
    type=ODDS,
    help="With --promise or --watch, take labels that do not say how their traces were chosen, if runs worth "
    "keeping get one up to this many times as often as others, such as 2, or 0.5 for complaints.",
)
@click.option(
    "--plan",
    "plan_file",
    type=EXISTING,
    help="Make the promise by the labels that this plan of `label --promise` asked for.",
)
@click.option(
    "--watch",
    "watch_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the promises of this earlier output of `evaluate --promise --json`, if it is there, and look "
    "whether labels since then withdraw them.",
)
@reward_option
@plot_option
@json_option
def evaluate(
    given: LabelledInputs,
    policy_files: tuple[Path, ...],
    least: float | None,
    odds: float | None,
    plan_file: Path | None,
    watch_file: Path | None,
    min_rewards: MinRewards,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Evaluate scores against labels.

    Reads scored traces as `tune` does. Prints for each domain a verdict: whether the score separates the two
    labels, whether it is better than the length alone, and which thresholds it supports. Then the AUC of the
    score and of each dimension, and precision and recall by threshold. Warns if the score contains the label,
    and leaves out traces that a learned value was fitted to. Labels of one `group`, such as the trials of one
    task, are resampled together. With several policies, it prints the differences of the others from the
    first, each with its interval. Where several sources label the same traces, it prints how far they
    agree. If a trace has several labels, the latest counts; people's labels take precedence over a model's.

    With --promise, it first says how much may pass, by labels of traces that were chosen at random. Decide
    how many labels to give before you look: who looks again and again is promised too much. With --watch,
    look as often as you like: it makes no promise, and tells whether those that were made still hold.
    """
    from knowledgepulse_curator.fitting import evaluate, evaluate_report  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_curator.promises.alarm import Watch, alarm_lines, watch_of, watched  # noqa: PLC0415 - as above
    from knowledgepulse_curator.promises.plan import plan_of, planned_promises  # noqa: PLC0415 - as above
    from knowledgepulse_curator.promises.promise import Asked, promises  # noqa: PLC0415 - as above
    from knowledgepulse_curator.promises.promise_report import promise_lines  # noqa: PLC0415 - as above
    from knowledgepulse_curator.promises.sample import Stream  # noqa: PLC0415 - as above
    from knowledgepulse_worker.tools.score.offline import embedder_name  # noqa: PLC0415 - as above

    if odds is not None and least is None and watch_file is None:
        raise click.UsageError("--feedback-odds needs --promise or --watch")
    if sum(one is not None for one in (least, plan_file, watch_file)) > 1:
        raise click.UsageError(
            "give one of --promise and --plan, to make promises, and --watch, to keep those of a file"
        )
    policies = [load_policy(file) for file in policy_files] or [given.policy]
    every, min_reward = given.all_labels(), min_rewards.of_labels
    records = given.records()
    every += given.outcome_labels(records, min_rewards)
    asked = Asked(
        least or 0,
        odds,
        embedder_name(given.settings.embedding),
        min_reward,
        not given.is_selection,
        token_hex(8),
    )
    watch = Watch()
    if watch_file is not None:
        watch = watched(watch_of(watch_file), Stream(records, policies[0]), every, asked)
    elif plan_file is not None:
        watch.promises = planned_promises(plan_of(plan_file), Stream(records, policies[0]), every, asked)
    elif least is not None:
        watch.promises = promises(records, every, policies[0], asked)
    agreed, used = list(agreements(every, min_reward)), labels_to_use(every)
    evaluation = evaluate.evaluate(records, used, policies[0], min_reward=min_reward)
    compared = evaluate.compare(records, used, policies, min_reward=min_reward) if policies[1:] else []
    if plot and any(domain.score for domain in evaluation.domains.values()):
        from knowledgepulse_curator.fitting.plots import plot_evaluation  # noqa: PLC0415 - matplotlib is slow
        from knowledgepulse_worker.tools.policies.plots import save  # noqa: PLC0415 - matplotlib is slow

        save(plot_evaluation(evaluation, records), plot)
    words = (
        *promise_lines(watch.promises.values()),
        *alarm_lines(watch),
        *evaluate_report.verdicts(evaluation),
        *evaluate_report.changes(compared),
        "",
        *evaluate_report.evaluation_tables(evaluation),
        *agreement_lines(agreed),
        *evaluate_report.comparison_tables(compared),
    )
    report = vars(evaluation) | {"agreements": agreed, "compared": compared} | plain(watch)
    print_report(report, words, as_json=as_json)
