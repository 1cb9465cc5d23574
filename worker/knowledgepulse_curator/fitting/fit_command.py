"""The command ``kp-worker policy fit``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from knowledgepulse_curator.labels.labelled_inputs import (
    BELOW_ONE,
    LabelledInputs,
    MinRewards,
    judged_source_options,
    labels_to_fit,
    reward_option,
)
from knowledgepulse_curator.labels.labels import agreement_lines, agreements
from knowledgepulse_worker.tools.policies.command_inputs import (
    output_option,
    plot_option,
    policy_option,
    target_option,
)
from knowledgepulse_worker.tools.terminal.arguments import SHARE
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.lines import file_errors
from knowledgepulse_worker.tools.terminal.options import json_option
from knowledgepulse_worker.tools.terminal.reports import print_report

NO_PROPOSAL = 3
"""The exit status if the labels support no change."""


@click.command()
@judged_source_options
@policy_option
@target_option
@reward_option
@click.option("--share", type=SHARE, default=1.0, help="Share of the learned value in the score.")
@click.option(
    "--outcome-confidence",
    is_flag=True,
    help="Fit outcome confidence too. Labels that depend on the outcome make it meaningless.",
)
@click.option(
    "--words",
    is_flag=True,
    help="Fit the words of the traces beside their facts. At least 50 traces of each kind are needed.",
)
@click.option(
    "--promise",
    "least",
    type=BELOW_ONE,
    help="Propose the largest share of which at least this part is worth keeping, with a confidence of 90%, "
    "where labels of traces that were chosen at random promise one.",
)
@plot_option
@output_option
@json_option
def fit(
    given: LabelledInputs,
    min_rewards: MinRewards,
    least: float | None,
    plot: Path | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit learned values to labels, and propose them if the labels support a change.

    Reads scored traces as `tune` does. Fits a logistic regression on the dimensions and facts of the traces,
    domain by domain. Where there are labels of people and of models, fits to both, and judges by people's.
    Where all labels say `keep`, tells these traces from those without a label. Prints a verdict for each
    domain, and figures of traces that were not fitted to: of the policy in force, of the learned value, of
    the length alone and of the agent's name alone. Then a [policy] to review, with the target share.

    If the labels support no change in any domain, it writes no file, removes a former --output, and ends
    with status 3.
    """
    from knowledgepulse_curator.fitting import fit, fit_report  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_curator.promises.promise import Asked  # noqa: PLC0415 - as above
    from knowledgepulse_worker.tools.score.offline import embedder_name  # noqa: PLC0415 - as above

    given.require_other(output, *given.label_files)
    active, every, min_reward = given.policy, given.all_labels(), min_rewards.of_labels
    records = given.comparable()
    every += given.outcome_labels(records, min_rewards)
    agreed, used = list(agreements(every, min_reward)), labels_to_fit(every)
    today = datetime.now(UTC).date().isoformat()
    promised = None
    if least is not None:
        embedder = embedder_name(given.settings.embedding)
        promised = Asked(least, None, embedder, min_reward, whole=not given.is_selection)
    fitted = fit.fit(
        records, used, active, today=today, min_reward=min_reward, promised=promised, every=every, **options
    )
    if plot and any(domain.appraisals for domain in fitted.domains.values()):
        from knowledgepulse_curator.fitting.plots import plot_fit  # noqa: PLC0415 - matplotlib is slow
        from knowledgepulse_worker.tools.policies.plots import save  # noqa: PLC0415 - matplotlib is slow

        save(plot_fit(fitted, records), plot)
    words = (*fit_report.fit_tables(fitted), *agreement_lines(agreed))
    proposal = fit_report.fitted_toml(fitted) if fitted.proposes else ""
    report = vars(fitted) | {"agreements": agreed}
    print_report(report, words, as_json=as_json, proposal=proposal, output=output if proposal else None)
    if not fitted.proposes:
        if output:
            with file_errors(output, "written"):
                output.unlink(missing_ok=True)
        errors.print("no domain has a proposal, and no policy was written")
        sys.exit(NO_PROPOSAL)
