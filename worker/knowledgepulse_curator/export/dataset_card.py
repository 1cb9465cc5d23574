"""The cards of a dataset and of its formats: ``README.md`` with the hub's metadata, made from the manifest.

``datasets.load_dataset`` takes a folder's files and types from its card. Its cache knows a folder by its name
and by the metadata of its card: only a version that changes with the data keeps it from returning the rows of
an earlier export, or of another folder of the same name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from knowledgepulse_curator.export.candidates import reason_text
from knowledgepulse_curator.export.manifest import (
    CLEANER,
    CUT,
    MESSAGES,
    NOT_CLEAN,
    NOTHING_SAID,
    SPLITS,
    TABLE,
    Choices,
    File,
    Format,
    Manifest,
)
from knowledgepulse_curator.export.splits import NEAR_SIMILARITY
from knowledgepulse_worker.message_text import counted, printable

CARD = "README.md"
_MAX_SHOWN = 20
_TABLES = (
    "split",
    "domain",
    "decision",
    "framework",
    "agent",
    "visibility",
    "privacy level",
    "policy",
    "threshold",
    "score from",
)
_FORMATS: dict[Format, str] = {"messages": "OpenAI's chat messages", "atif": "ATIF trajectories"}
_MEMBERS: dict[Format, dict[str, str]] = {
    "messages": {"id": "dtype: string", "messages": "list: json", "tools": "list: json"},
    "atif": {
        "schema_version": "dtype: string",
        "session_id": "dtype: string",
        "agent": "dtype: json",
        "steps": "list: json",
    },
}
"""The types of the members of each format's lines, in the words of the hub's metadata."""

_ESCAPES = {ord(character): f"\\{character}" for character in "\\|`<>[]*_#"}


def cards(manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each card: the dataset's, and those of the formats' folders."""
    yield CARD, _page(_metadata(manifest, TABLE, f"{TABLE}/"), _text(manifest))
    for name in _formats(manifest):
        metadata = _metadata(manifest, name, "", _features(name, weights=manifest.choices.weights))
        text = "These are the traces of the [dataset](../README.md), in JSON Lines."
        yield f"{name}/{CARD}", _page(metadata, [f"# The traces as {_FORMATS[name]}\n", text])


def _formats(manifest: Manifest) -> list[Format]:
    """Return the formats that have files."""
    return [name for name in manifest.choices.also if _splits(manifest, name)]


def _splits(manifest: Manifest, folder: str) -> list[str]:
    """Return the splits that have files in a folder."""
    return [
        split for split in SPLITS if any(path.startswith(f"{folder}/{split}/") for path in manifest.files)
    ]


def _page(metadata: Iterable[str], text: Iterable[str]) -> bytes:
    return "\n".join(["---", *metadata, "---\n", *text, ""]).encode()


def _metadata(manifest: Manifest, folder: str, place: str, features: Iterable[str] = ()) -> Iterator[str]:
    """Yield the lines from which the hub and `datasets` learn the files of each split, and their types.

    A split is named even without traces: `datasets` then refuses the folder, and would otherwise take the
    manifest for its data.

    Args:
        manifest: the manifest.
        folder: the folder of the splits.
        place: the start of its paths, seen from the card.
        features: the lines about the types.
    """
    version = int(File.of(manifest.to_json()).sha256[:8], 16)
    yield "tags: [agent, traces, knowledgepulse]\nconfigs:\n- config_name: default\n  data_files:"
    for split in _splits(manifest, folder) or SPLITS[:1]:
        yield f"  - {{split: {split}, path: '{place}{split}/**'}}"
    yield f"dataset_info:\n  version: 0.0.{version}"
    yield from features


def _features(name: Format, *, weights: bool) -> Iterator[str]:
    """Yield the types of a format's members, of which `datasets` would know only those in the first file."""
    members = _MEMBERS[name] | ({"reasons": "list: string"} if weights and name == "messages" else {})
    yield "  features:"
    yield from (f"  - {{name: {member}, {kind}}}" for member, kind in members.items())


def _text(manifest: Manifest) -> Iterator[str]:
    exports, choices = manifest.exports, manifest.choices
    days = [*manifest.total("day")] or ["no day"]
    rows, read = sum(manifest.total("split").values()), sum(export.read for export in exports)
    yield f"# Scored agent traces from {', '.join(_safe(name) for name in manifest.source)}\n"
    yield (
        f"`kp-worker export` selected {counted(rows, 'scored trace')} from {counted(read, 'record')} in "
        f"{counted(len(exports), 'export')}. The traces date from {days[0]} to {days[-1]} (UTC). "
        "`manifest.json` lists the hash of each file and the offsets that each export read.\n"
    )
    for folder in _formats(manifest):
        yield (
            f"The folder `{folder}` contains the same traces as {_FORMATS[folder]}: "
            f"`load_dataset('./{folder}')`.\n"
        )
    if cut := manifest.total(MESSAGES):
        yield (
            f"In {counted(cut.get(CUT, 0), 'trace')}, messages after the assistant's last are cut. Without a "
            f"message of the assistant, there are none: {counted(cut.get(NOTHING_SAID, 0), 'trace')}.\n"
        )
    yield "Traces that share a run, a task or an objective are in the same split, as are traces whose"
    similarity = f"a cosine similarity of {NEAR_SIMILARITY:g} or more"
    yield f"vectors ({_safe(choices.embedder)}) have {similarity}. The seed of the"
    yield f"split is {choices.seed}."
    for name in _TABLES:
        yield from _table(name.capitalize(), manifest.total(name))
    yield "\n## What is left out\n"
    yield from _permission(choices)
    unclean = manifest.total(CLEANER).get(NOT_CLEAN, 0)
    finding = f"finds something in {unclean:,} of them" if unclean else "finds nothing in them"
    yield f"{_redaction(choices)} The SDK's cleaner {'was not run' if choices.not_cleaned else finding},"
    yield f"and detect-secrets {'finds no keys' if choices.scan_secrets else 'was not run'}. Before an export"
    deleted = counted(sum(export.deleted for export in exports), "offset")
    yield f"could read them, {deleted} had been deleted. The traces were"
    selection = {name: getattr(choices, name) for name in ("domain", "min_score", "policy", "best")}
    yield f"selected by `{json.dumps(selection)}`."
    dropped: dict[str, int] = {}
    for export in exports:
        for key, count in export.dropped.items():
            dropped[reason_text(key)] = dropped.get(reason_text(key), 0) + count
    yield from _table("Records left out", dropped)


def _permission(choices: Choices) -> Iterator[str]:
    if choices.audience == "inside":
        yield "**For use inside the organization only**: the traces have any visibility and privacy level."
        return
    for name, may_leave in (("visibility", choices.visibilities), ("privacy level", choices.privacy_levels)):
        listed = ", ".join(may_leave) or "none"
        yield f"Only traces with one of these values of {name} are exported: {listed}."


def _redaction(choices: Choices) -> str:
    if choices.redact is not None:
        return f"The traces are redacted by `{_safe(choices.redact)}`."
    return f"The traces are {'redacted copies' if choices.redacted else 'not redacted'}."


def _table(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    if counts:
        shown = list(counts.items())[:_MAX_SHOWN]
        yield f"\n| {title} | number |\n|---|---|"
        yield from (f"| {_safe(name)} | {count:,} |" for name, count in shown)
        if others := len(counts) - len(shown):
            yield f"| {others:,} others | {sum(counts.values()) - sum(count for _, count in shown):,} |"


def _safe(text: str) -> str:
    """Return a producer's text so that it cannot change the page's form."""
    return printable(text[:80]).translate(_ESCAPES)
