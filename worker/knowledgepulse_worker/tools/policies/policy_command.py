"""The commands ``kp-worker policy``. The commands that read traces are in other modules."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import load_policy, load_settings
from knowledgepulse_worker.terminal.arguments import EXISTING
from knowledgepulse_worker.terminal.command_group import CommandGroup
from knowledgepulse_worker.terminal.options import config_option
from knowledgepulse_worker.terminal.printable import time_text
from knowledgepulse_worker.tools.policies import policy_output, policy_report_commands
from knowledgepulse_worker.tools.policies.labelling.label_command import label

if TYPE_CHECKING:
    from knowledgepulse_worker.kafka.policy_topic import KeptPolicy


@click.group(cls=CommandGroup, commands=[*policy_report_commands.COMMANDS, label])
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
    policy_output.print_parts(f"policy {checked.digest}", policy_output.policy_table(checked))
    policy_output.print_parts(*policy_output.learned_tables(checked), "")
    policy_output.print_changes_from_sdk(checked)
    for suspicion in policy_output.suspicions(checked):
        policy_output.print_parts(f"note: {suspicion}")


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
    from knowledgepulse_worker.tools.policies.scored_topics import find_policy  # noqa: PLC0415 - keeps `--help` fast

    if not re.fullmatch("[0-9a-f]{4,12}", name):
        raise InputError(f"'{name}' is neither a policy file nor a digest (4 to 12 hexadecimal digits)")
    return find_policy(_history(config), name).policy


@policy.command()
@click.argument("digest", required=False)
@config_option
def show(digest: str | None, config: Path | None) -> None:
    """Print a policy that was in force.

    DIGEST is the policy's digest, or the beginning of it. By default, the policy that came into force last is
    printed.
    """
    from knowledgepulse_worker.tools.policies.scored_topics import find_policy  # noqa: PLC0415 - keeps `--help` fast

    history = _history(config)
    kept = find_policy(history, digest) if digest else history[-1]
    policy_output.print_parts(f"policy {kept.policy.digest}, in force since {time_text(kept.since_ms)}")
    policy_output.print_parts(policy_output.policy_table(kept.policy))
    policy_output.print_parts(*policy_output.learned_tables(kept.policy), "")
    policy_output.print_changes_from_sdk(kept.policy)


@policy.command()
@config_option
def history(config: Path | None) -> None:
    """List the policies that were in force, each with its changes from the one before.

    The first policy is compared with the KnowledgePulse SDK's policy. A policy that came into force more than
    once is listed only with the last time.
    """
    before, unchanged = Policy(), policy_output.AS_SDK
    for kept in _history(config):
        policy_output.print_parts(f"{time_text(kept.since_ms)}  policy {kept.policy.digest}")
        lines = policy_output.changes(before, kept.policy) or [unchanged]
        policy_output.print_parts(*(f"  {line}" for line in lines))
        before, unchanged = kept.policy, "scores and decides like the one before"


def _history(config: Path | None) -> list[KeptPolicy]:
    from knowledgepulse_worker.tools.policies.scored_topics import policy_history  # noqa: PLC0415 - keeps `--help` fast

    return asyncio.run(policy_history(load_settings(config)))
