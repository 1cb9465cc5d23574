"""The inputs of the commands that compare scored traces with labels, and their options."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from knowledgepulse_curator.labels.labels import (
    MIN_KEPT_REWARD,
    Label,
    Labels,
    labels_of_files,
    labels_of_outcomes,
)
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.command_inputs import Command, Inputs, source_options
from knowledgepulse_worker.tools.terminal.arguments import EXISTING, Number, NumberInRange
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.lines import located_lines
from knowledgepulse_worker.tools.terminal.options import with_options


@dataclass(frozen=True)
class MinRewards:
    """The lowest rewards of a trace worth keeping.

    Attributes:
        of_labels: that of the labels in files and topics.
        named: those of the traces' own rewards, by name.
    """

    of_labels: float = MIN_KEPT_REWARD
    named: Mapping[str, float] = field(default_factory=dict)


def _min_rewards(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> MinRewards:
    rules = {
        name: Number().convert(number, None, None) for name, _, number in (v.rpartition("=") for v in values)
    }
    of_labels = rules.pop("", MIN_KEPT_REWARD)
    return MinRewards(of_labels, rules)


BELOW_ONE = NumberInRange(0, 1, min_open=True, max_open=True)

reward_option = click.option(
    "--min-reward",
    "min_rewards",
    metavar="[NAME=]NUMBER",
    multiple=True,
    callback=_min_rewards,
    help="Lowest reward of a trace worth keeping: a label's, 0.5 by default, or the trace's own of this name "
    "with --labels-from-outcomes. Repeatable.",
)
_label_options = with_options(
    click.option(
        "--labels",
        "label_files",
        type=EXISTING,
        multiple=True,
        help="File of labels, one JSON object per line: id, keep or reward, source, group. Repeatable.",
    ),
    click.option("--labels-topic", help="Topic with labels, as an alternative or in addition to --labels."),
)
_outcomes_option = click.option(
    "--labels-from-outcomes",
    is_flag=True,
    help="Take as labels what graders said of the traces' runs, with the task as the group.",
)


@dataclass(frozen=True)
class LabelledInputs(Inputs):
    """The values of the options that select scored traces, a policy and labels."""

    label_files: tuple[Path, ...] = ()
    labels_topic: str | None = None
    labels_from_outcomes: bool = False

    @property
    def connects(self) -> bool:
        """Whether records or labels are read from the brokers."""
        return super().connects or self.labels_topic is not None

    def all_labels(self, *, required: bool = True) -> list[Label]:
        """Return all labels of the files and then of the topic."""
        if required and not self.label_files and self.labels_topic is None and not self.labels_from_outcomes:
            raise click.UsageError(
                "no labels: give --labels FILE, --labels-topic TOPIC or --labels-from-outcomes"
            )
        labels = labels_of_files(self.label_files)
        if self.labels_topic is not None:
            from knowledgepulse_curator.labels.labels_topic import labels_of_topic  # noqa: PLC0415 - files need no Kafka

            labels += asyncio.run(labels_of_topic(self.settings, self.labels_topic)).values()
        return labels

    @property
    def is_selection(self) -> bool:
        """Whether a file has lines of `kp-worker traces list`, which may be those of a band alone."""
        return any(map(is_selection, self.files))

    def outcome_labels(self, records: Sequence[ScoredRecord], min_rewards: MinRewards) -> list[Label]:
        """Return the labels that are the traces' own outcomes, if they are wanted.

        Raises:
            InputError: they are the only ones, and nobody judged a run.
        """
        if not self.labels_from_outcomes:
            return []
        labels = list(labels_of_outcomes(records, min_rewards.named))
        if not labels and not self.label_files and self.labels_topic is None:
            names = ", ".join(map(printable, min_rewards.named))
            reward = f", and none has the reward {names}" if names else ""
            raise InputError(
                f"nobody judged the runs of {counted(len(records), 'trace')}: none has "
                f'`metadata.outcome_source` "label"{reward}; `kp-worker convert '
                "--success-from NAME` takes a score as the judgement"
            )
        return labels


def is_selection(path: Path) -> bool:
    """Return whether a file has lines of `kp-worker traces list`, which may be those of a band alone."""
    _, line = next(iter(located_lines(path)))
    try:
        members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except DECODE_ERRORS:
        return False
    return "decision" in members and "partition" not in members


def labelled_source_options(command: Command) -> Command:
    """Add the options that select scored traces and labels; the command receives `LabelledInputs`."""
    return source_options(_label_options(command), LabelledInputs)


def judged_source_options(command: Command) -> Command:
    """Add these options, and that for labels from the traces themselves."""
    return labelled_source_options(_outcomes_option(command))


def labels_to_use(labels: Sequence[Label]) -> Labels:
    """Return the last label of each trace, by people if there are any, otherwise by a judge."""
    told = for_figures(labels)
    people = [label for label in told if not label.is_judges]
    if people and len(people) < len(told):
        errors.print(f"left out {len(told) - len(people)} labels of judges, as there are people's")
    return {label.id: label for label in people or told}


def labels_to_fit(labels: Sequence[Label]) -> Labels:
    """Return the last label of each trace, by a person if there is one, otherwise by a judge."""
    return {label.id: label for label in sorted(for_figures(labels), key=lambda label: not label.is_judges)}


def for_figures(labels: Sequence[Label]) -> list[Label]:
    """Return the labels but for those that tell nothing of all traces, and say how many these are.

    A skipped trace has no judgement. Labels that a promise's plan asked for are of the best traces alone.
    """
    told = [label for label in labels if not label.skipped and label.sampling != "step"]
    if len(told) < len(labels):
        errors.print(
            f"left out of all figures but a promise: {len(labels) - len(told)} labels of skipped traces "
            "and of a promise's plan"
        )
    return told
