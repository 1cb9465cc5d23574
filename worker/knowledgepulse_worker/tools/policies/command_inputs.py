"""The inputs of the commands (settings, policies, scored traces) and their options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import Settings, load_policy, load_settings, override
from knowledgepulse_worker.terminal.config_option import config_option, settings_file
from knowledgepulse_worker.tools.terminal.arguments import EXISTING, SHARE, InputFile, NewFile, Period
from knowledgepulse_worker.tools.terminal.console import errors
from knowledgepulse_worker.tools.terminal.options import embedder_option, period_options, with_options

if TYPE_CHECKING:
    from knowledgepulse_worker.scoring import ScoredRecord

Command = Callable[..., Any]


policy_option = click.option(
    "--policy", "policy_file", type=EXISTING, help="Policy file to use instead of the settings' policy."
)
_TARGET = "Share of each domain's traces that should pass at most."
target_option = click.option("--target", type=SHARE, default=0.1, help=_TARGET)
_OUTPUT = "Write the proposed [policy] to this file instead of printing it."
output_option = click.option("--output", type=NewFile(), help=_OUTPUT)
_PLOT = "Write a plot to this .png or .svg file."
plot_option = click.option("--plot", type=NewFile(".png", ".svg"), help=_PLOT)


def source_options(command: Command, kind: type[Inputs] | None = None) -> Command:
    """Add the options that select scored traces; the command receives them as ``given``.

    ``kind``: the class of what it receives, :class:`Inputs` by default.
    """
    make = kind or Inputs

    @wraps(command)
    def bundled(**values: Any) -> Any:
        period = Period(values.pop("since"), values.pop("until"))
        given = {name: values.pop(name) for name in make.__dataclass_fields__ if name in values}
        return command(given=make(period=period, **given), **values)

    add = with_options(
        click.argument("files", nargs=-1, type=InputFile(exists=True, path_type=Path)),
        config_option,
        period_options("From topics, read only records"),
        embedder_option("Embedder for raw traces, instead of embedding.backend."),
    )
    return add(bundled)


@dataclass(frozen=True)
class Inputs:
    """The values of the options that select scored traces and a policy."""

    files: tuple[Path, ...] = ()
    config: Path | None = None
    period: Period = field(default_factory=Period)
    embedder: str | None = None
    policy_file: Path | None = None

    @property
    def connects(self) -> bool:
        """Whether records are read from the brokers."""
        return not self.files

    @cached_property
    def settings(self) -> Settings:
        """The settings, with the embedder for raw traces."""
        settings = load_settings(settings_file(self.config, connects=self.connects))
        return override(settings, "embedding", {"backend": self.embedder}) if self.embedder else settings

    @cached_property
    def policy(self) -> Policy:
        """The policy of the file, or else of the settings. Read it first, as scoring traces takes minutes."""
        settings = self.settings  # read even with a file, so that wrong settings are reported at once
        return load_policy(self.policy_file) if self.policy_file else settings.policy

    def records(self) -> list[ScoredRecord]:
        """Return the scored traces of the files, or else of the topics."""
        if not self.files:
            return asyncio.run(self._records_of_topics())
        return [*self.records_of_files(self.settings.policy)]

    def records_of_files(self, policy: Policy) -> Iterator[ScoredRecord]:
        """Return an iterator over the traces of the files; raw traces are scored under the policy."""
        if self.period != Period():
            raise click.UsageError(
                "--since and --until apply only to topics: lines of files have no timestamp"
            )
        from knowledgepulse_worker.tools.policies.scored_files import read_files  # noqa: PLC0415 - topics need no numpy

        return read_files(self.files, self.settings.model_copy(update={"policy": policy}))

    async def _records_of_topics(self) -> list[ScoredRecord]:
        from knowledgepulse_worker.tools.policies.scored_topics import open_scored_topics  # noqa: PLC0415 - as above

        async with open_scored_topics(self.settings) as topics:
            records = [scored async for _, scored in topics.read(self.period)]
        if topics.repeats:
            errors.print(f"skipped {topics.repeats:,} records that repeat earlier ones")
        if topics.foreign:
            errors.print(f"skipped {topics.foreign:,} records that were not written by a worker")
        if not records:
            names = " and ".join(self.settings.topics.scored)
            of = " of that period" if self.period != Period() else ""
            raise InputError(f"{names} contain no scored traces{of}")
        return records

    def comparable(self) -> list[ScoredRecord]:
        """Return the scored traces, and warn if the settings' embedder would score them otherwise."""
        from knowledgepulse_worker.tools.policies.tune import embedder_warning  # noqa: PLC0415 - keeps `--help` fast

        records = self.records()
        if warning := embedder_warning(records, self.settings.embedding):
            errors.print(f"warning: {warning}")
        return records

    def require_other(self, output: Path | None, *more: Path) -> None:
        """Raise an InputError if writing a file would overwrite what the command reads."""
        read = (*self.files, self.config, self.policy_file, *more)
        if (
            output
            and output.exists()
            and any(path.samefile(output) for path in read if path and path.exists())
        ):
            raise InputError(f"{output}: is read by this command; write to another file")
