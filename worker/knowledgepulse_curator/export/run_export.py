"""Carry out ``kp-worker export``: open the inputs and the folder, export or check, and tell the result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from knowledgepulse_curator.export.candidates import REMEDIES, Rules, reason_text
from knowledgepulse_curator.export.dataset_export import check, export
from knowledgepulse_curator.export.dataset_store import open_store
from knowledgepulse_curator.export.export_inputs import ExportInputs, FileInputs, open_topics
from knowledgepulse_curator.export.manifest import (
    CLEANER,
    CUT,
    MESSAGES,
    NOT_CLEAN,
    NOTHING_SAID,
    Choices,
    Export,
)
from knowledgepulse_curator.export.redacted_inputs import RedactedInputs
from knowledgepulse_curator.export.secret_scan import Scanner, detectors
from knowledgepulse_curator.labels.labels import labels_of_files
from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.policy import PRIVACY_LEVELS, ROUTES, VISIBILITIES
from knowledgepulse_worker.redaction.process import RedactionProcess
from knowledgepulse_worker.redaction.sdk import SDK_CLEANER
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.score.offline import embedder_name
from knowledgepulse_worker.tools.terminal.arguments import milliseconds
from knowledgepulse_worker.tools.terminal.console import TopicProgressCallback, errors, topic_progress


async def run_export(
    folder: str, files: Sequence[Path], settings: Settings, redacted: str | None, options: dict[str, Any]
) -> int:
    """Export, or check a dataset; return the exit status.

    Args:
        folder: the dataset's folder, a path or a URL.
        files: the files of scored traces; empty reads topics.
        settings: the settings, with the policy of the export.
        redacted: the topic of redacted copies, if it is read.
        options: the options of the command.
    """
    rules = _rules(settings, files, redacted, options)
    is_check = options["check"]
    with Scanner() as scanner, open_store(folder, writes=not is_check) as store, topic_progress() as progress:
        if options["scan_secrets"]:
            rules = replace(rules, scan=scanner)
        async with _opened_inputs(files, settings, redacted, rules, progress) as inputs:
            if is_check:
                problems = await check(inputs, store, rules)
                for problem in problems:
                    click.echo(problem)
                return 1 if problems else 0
            done = await export(inputs, store, rules)
    for finished in done:
        if options["as_json"]:
            click.echo(msgspec.json.encode(finished))
        else:
            errors.print(_told(finished, rules.choices), markup=False)
    if not done:
        errors.print("no new records to export")
    return 0


@asynccontextmanager
async def _opened_inputs(
    files: Sequence[Path],
    settings: Settings,
    redacted: str | None,
    rules: Rules,
    progress: TopicProgressCallback,
) -> AsyncIterator[ExportInputs]:
    """Open the files or else the topics, with redacted traces if they are to be redacted."""
    topics, choices = settings.topics, rules.choices
    kept, others = (
        [topics.of(route) for route in ROUTES.values() if route.kept is kept] for kept in (True, False)
    )
    names = [*([redacted] if redacted else kept), *(others if choices.policy else [])]
    async with AsyncExitStack() as stack:
        inputs: ExportInputs
        if files:
            inputs = FileInputs(files, progress)
        else:
            inputs = await stack.enter_async_context(open_topics(settings, names, progress))
        if choices.redact is not None:
            process = RedactionProcess(choices.redact, settings.redaction.timeout)
            inputs = RedactedInputs(inputs, (await stack.enter_async_context(process)).redact)
        yield inputs


def _told(export: Export, choices: Choices) -> str:
    """Return the result of an export in words: what was left out and why, and what the user can do."""
    rows = sum(export.counts.get("split", {}).values())
    parts = [f"export {export.number}: {rows:,} of {export.read:,} records exported"]
    for key, count in export.dropped.items():
        remedy = REMEDIES.get(key.partition(":")[0])
        if key.startswith("not_redacted") and choices.redact is not None:
            remedy = None
        parts.append(f"{count:,} left out: {reason_text(key)}" + (f" ({remedy})" if remedy else ""))
    if unclean := export.counts.get(CLEANER, {}).get(NOT_CLEAN, 0):
        parts.append(
            f"in {unclean:,}, the SDK's cleaner finds secrets or personal data (`--redact` removes them)"
        )
    cut = export.counts.get(MESSAGES, {})
    if CUT in cut:
        parts.append(
            f"in {cut[CUT]:,}, messages after the assistant's last are cut (`--keep-tail` keeps them)"
        )
    if NOTHING_SAID in cut:
        parts.append(f"{cut[NOTHING_SAID]:,} not in `messages`: the assistant says nothing")
    return "; ".join(parts)


def _rules(settings: Settings, files: Sequence[Path], redacted: str | None, options: dict[str, Any]) -> Rules:
    if options["scan_secrets"]:
        detectors()  # before anything is read
    labels = {label.id: label for label in labels_of_files(options["labels"])}
    given = {name: value for name, value in options.items() if name in Choices.__struct_fields__}
    visibilities: tuple[str, ...] = VISIBILITIES
    privacy_levels: tuple[str, ...] = PRIVACY_LEVELS
    if options["audience"] != "inside":
        guards = settings.policy.guards
        visibilities = tuple(visibility for visibility in guards["visibility"] if visibility == "network")
        privacy_levels = tuple(level for level in guards["privacy_level"] if level != "private")
    choices = given | {
        "domain": tuple(sorted({*options["domain"]})),
        "also": tuple(sorted({*options["also"]})),
        "without_tail": "messages" in options["also"] and not options["keep_tail"],
        "policy": options["policy"] and settings.policy.digest,
        "visibilities": visibilities,
        "privacy_levels": privacy_levels,
        "embedder": embedder_name(settings.embedding),
        "redacted": redacted is not None,
        "redact": (settings.redaction.function or SDK_CLEANER) if options["redact"] else None,
    }
    return Rules(
        choices=Choices(**choices),
        policy=settings.policy,
        tasks={name: str(label.group) for name, label in labels.items() if label.group is not None},
        since_ms=milliseconds(options["since"]),
        embedder=None if options["check"] else load_embedder(settings.embedding, settings.cache),
        text=settings.embedding.trace_text,
        scan=None,
        has_score=not redacted and (options["policy"] is not None or not files),
    )
