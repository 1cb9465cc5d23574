"""The inputs of the commands that compare scored traces with labels, and their options."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from knowledgepulse_curator.labels.labels import Label, Labels, labels_of_files
from knowledgepulse_worker.tools.policies.command_inputs import Command, Inputs, source_options
from knowledgepulse_worker.tools.terminal.arguments import EXISTING, Number
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.options import with_options

_REWARD = "Lowest reward of a trace worth keeping."
reward_option = click.option("--min-reward", type=Number(), default=0.5, help=_REWARD)
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


@dataclass(frozen=True)
class LabelledInputs(Inputs):
    """The values of the options that select scored traces, a policy and labels."""

    label_files: tuple[Path, ...] = ()
    labels_topic: str | None = None

    @property
    def connects(self) -> bool:
        """Whether records or labels are read from the brokers."""
        return super().connects or self.labels_topic is not None

    def all_labels(self, *, required: bool = True) -> list[Label]:
        """Return all labels of the files and then of the topic."""
        if required and not self.label_files and self.labels_topic is None:
            raise click.UsageError("no labels: give --labels FILE or --labels-topic TOPIC")
        labels = labels_of_files(self.label_files)
        if self.labels_topic is not None:
            from knowledgepulse_curator.labels.labels_topic import labels_of_topic  # noqa: PLC0415 - files need no Kafka

            labels += asyncio.run(labels_of_topic(self.settings, self.labels_topic)).values()
        return labels


def labelled_source_options(command: Command) -> Command:
    """Add the options that select scored traces and labels; the command receives `LabelledInputs`."""
    return source_options(_label_options(command), LabelledInputs)


def labels_to_use(labels: Sequence[Label]) -> Labels:
    """Return the last label of each trace, by people if there are any, otherwise by a judge."""
    people = [label for label in labels if not label.is_judges]
    if people and len(people) < len(labels):
        errors.print(f"left out {len(labels) - len(people)} labels of judges, as there are people's")
    return {label.id: label for label in people or labels}


def labels_to_fit(labels: Sequence[Label]) -> Labels:
    """Return the last label of each trace, by a person if there is one, otherwise by a judge."""
    return {label.id: label for label in sorted(labels, key=lambda label: not label.is_judges)}
