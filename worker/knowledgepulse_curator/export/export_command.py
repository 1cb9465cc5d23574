"""``kp-worker export``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.settings import load_policy, load_settings, override
from knowledgepulse_worker.terminal.config_option import config_option
from knowledgepulse_worker.tools.terminal.arguments import EXISTING, SCORE, Moment, NumberInRange
from knowledgepulse_worker.tools.terminal.options import embedder_option


@click.command()
@click.argument("folder")
@click.argument("files", nargs=-1, type=EXISTING)
@config_option
@click.option(
    "--also",
    type=click.Choice(["messages", "atif"]),
    multiple=True,
    help="Write this format in addition to Parquet: OpenAI's chat messages with tools, or ATIF. Repeatable.",
)
@click.option(
    "--weights",
    is_flag=True,
    help="With --also messages: give the assistant's messages OpenAI's `weight`, which is 0 if a call failed "
    "or was repeated in vain, and name the reasons.",
)
@click.option(
    "--arguments",
    type=click.Choice(["text", "object"]),
    default="text",
    help="With --also messages: write the arguments of calls as JSON text, which is OpenAI's form, or as an "
    "object, which most chat templates expect.",
)
@click.option(
    "--keep-tail",
    is_flag=True,
    help="With --also messages: keep what follows the assistant's last message, which many trainers refuse.",
)
@click.option(
    "--for",
    "audience",
    type=click.Choice(["inside", "network"]),
    default="inside",
    help="Who may read the dataset. `network` leaves out traces whose visibility is not `network`, whose "
    "privacy level is `private`, or in which the SDK's cleaner finds secrets or personal data.",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Redact each trace, by redaction.function or else by the SDK's cleaner.",
)
@click.option("--unredacted", is_flag=True, help="Read `contribute` even if topics.redacted is set.")
@click.option(
    "--not-cleaned",
    is_flag=True,
    help="Do not look for secrets and personal data with the SDK's cleaner.",
)
@click.option(
    "--scan-secrets",
    is_flag=True,
    help="Leave out traces in which `detect-secrets` finds a key (needs the extra `secrets`).",
)
@click.option("--min-score", type=SCORE, default=0.0, help="Lowest score to export.")
@click.option("--domain", multiple=True, help="Export only traces of this domain or task domain. Repeatable.")
@click.option(
    "--since",
    type=Moment(),
    help="Export only records from this time on: 2026-01-31T12:00, in UTC by default, or an age such as 7d.",
)
@click.option(
    "--policy",
    type=EXISTING,
    help="Rescore all scored traces under this policy, and export those that pass.",
)
@click.option(
    "--best",
    type=click.IntRange(min=1),
    help="Export only this number of new traces: the best of each group, of many groups.",
)
@click.option("--seed", type=int, default=0, help="Seed of the splits and of --best.")
@click.option(
    "--shares",
    type=(NumberInRange(0, 100), NumberInRange(0, 100)),
    default=(10.0, 10.0),
    help="Percentages of the groups for the validation and test splits.",
)
@embedder_option("Embedder for the similarity of traces, instead of embedding.backend.")
@click.option(
    "--labels",
    type=EXISTING,
    multiple=True,
    help="File of labels, as for `policy evaluate`; their `group` names the task. Repeatable.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Export nothing; check the dataset's files, and its traces against their records.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print each export as a line of JSON, on standard output."
)
def export(folder: str, files: tuple[Path, ...], **options: Any) -> None:
    """Export contributed traces to a dataset in FOLDER, starting where the last export ended.

    FOLDER is a local folder, or a URL such as s3://bucket/name or gs://bucket/name. Reads the topic
    `topics.redacted` if it is set, otherwise `contribute`, or instead FILES with one scored trace per line,
    such as the output of `kp-worker score --traces`. Writes Parquet files by split, domain and day, a dataset
    card and a manifest.

    The dataset is for use inside the organization, whatever the traces' visibility, unless it is made
    `--for network`. The next export completes one that was interrupted. All exports to a folder must use the
    same options.
    """
    of_messages = {
        "--weights": options["weights"],
        "--arguments object": options["arguments"] == "object",
        "--keep-tail": options["keep_tail"],
    }
    if any(of_messages.values()) and "messages" not in options["also"]:
        named = next(name for name, given in of_messages.items() if given)
        raise click.UsageError(f"{named} needs --also messages, which it changes")
    if sum(options["shares"]) > 100:
        raise click.UsageError("--shares: validation and test add up to more than 100 percent")
    if Path(folder).is_file():
        raise click.UsageError(f"'{folder}' is a file; name the dataset's folder first, and then FILES")
    settings = load_settings(options["config"])
    if options["embedder"] is not None:
        settings = override(settings, "embedding", {"backend": options["embedder"]})
    redacted = settings.topics.redacted if not (options["unredacted"] or files) else None
    for name in ("policy", "redact"):
        if options[name] and redacted:
            raise click.UsageError(
                f"--{name} needs the traces themselves, but topics.redacted has redacted copies; to read the "
                "traces, add --unredacted"
            )
    if options["policy"] is not None:
        policy = load_policy(options["policy"])
        if shared := [name for name, profile in policy.profiles.items() if profile.share is not None]:
            raise InputError(
                f"{options['policy']}: has a share for {shared[0]}, but an export does not read all traces "
                "among which it is counted; give a threshold"
            )
        settings = settings.model_copy(update={"policy": policy})
    with extra("export"):
        from knowledgepulse_curator.export.run_export import run_export  # noqa: PLC0415 - keeps `--help` fast

    sys.exit(asyncio.run(run_export(folder, files, settings, redacted, options)))
