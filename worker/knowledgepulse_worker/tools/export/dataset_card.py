"""The dataset card: ``README.md`` with the hub's metadata, made from the manifest alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from knowledgepulse_worker.texts import counted, printable
from knowledgepulse_worker.tools.export.candidates import REASONS
from knowledgepulse_worker.tools.export.manifest import SPLITS, TABLE, Manifest
from knowledgepulse_worker.tools.export.splits import NEAR

CARD = "README.md"
_SHOWN = 20
_TABLES = (
    "split",
    "domain",
    "decision",
    "framework",
    "agent",
    "visibility",
    "policy",
    "threshold",
    "score from",
)
_ESCAPES = {ord(one): f"\\{one}" for one in "\\|`<>[]*_#"}


def card(manifest: Manifest) -> bytes:
    """Return the file's content."""
    return "\n".join([*_metadata(manifest), *_text(manifest), ""]).encode()


def _metadata(manifest: Manifest) -> Iterator[str]:
    """Yield the block from which the hub and ``datasets.load_dataset`` learn the files of each split."""
    splits = manifest.total("split")
    yield "---\ntags: [agent, traces, knowledgepulse]"
    if splits:  # `datasets` would need a separate repository for each other format
        yield "configs:\n- config_name: default\n  data_files:"
        yield from (f"  - {{split: {one}, path: '{TABLE}/{one}/**'}}" for one in SPLITS if one in splits)
    yield "---\n"


def _text(manifest: Manifest) -> Iterator[str]:
    exports, choices = manifest.exports, manifest.choices
    days = [*manifest.total("day")] or ["no day"]
    rows, read = sum(manifest.total("split").values()), sum(one.read for one in exports)
    yield f"# Scored agent traces from {', '.join(_safe(name) for name in manifest.source)}\n"
    yield (
        f"`kp-worker export` selected {counted(rows, 'scored trace')} from {counted(read, 'record')} in "
        f"{counted(len(exports), 'export')}. The traces date from {days[0]} to {days[-1]} (UTC). "
        "`manifest.json` lists the hash of each file and the offsets that each export read.\n"
    )
    for one in choices.also:
        yield (
            f"The folder `{one}` contains the same traces as JSON Lines: "
            f"`load_dataset('json', data_files='{one}/train/**')`.\n"
        )
    yield "Traces that share a run, a task or an objective are in the same split, as are traces whose"
    yield f"vectors ({_safe(choices.embedder)}) have a cosine similarity of {NEAR:g} or more. The seed of the"
    yield f"split is {choices.seed}."
    for name in _TABLES:
        yield from _table(name.capitalize(), manifest.total(name))
    yield "\n## What is left out\n"
    for name, may_leave in (("visibility", choices.visibilities), ("privacy level", choices.privacy_levels)):
        leaving = ", ".join(one for one in may_leave if one != "private") or "none"
        yield f"Only traces with one of these values of {name} are exported: {leaving}."
    yield f"The traces are {'redacted copies' if choices.redacted else 'not redacted'}. The SDK's cleaner"
    yield f"{'was not run' if choices.not_cleaned else 'finds nothing in them'}, and detect-secrets"
    yield f"{'finds no keys' if choices.scan_secrets else 'was not run'}. Before an export could read"
    yield f"them, {counted(sum(one.deleted for one in exports), 'offset')} had been deleted. The traces were"
    selection = {
        name: getattr(choices, name) for name in ("domain", "min_score", "policy", "best", "diverse")
    }
    yield f"selected by `{json.dumps(selection)}`."
    dropped = {text: sum(one.dropped.get(name, 0) for one in exports) for name, text in REASONS.items()}
    yield from _table("Records left out", {text: count for text, count in dropped.items() if count})


def _table(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    if counts:
        shown = list(counts.items())[:_SHOWN]
        yield f"\n| {title} | number |\n|---|---|"
        yield from (f"| {_safe(name)} | {count:,} |" for name, count in shown)
        if others := len(counts) - len(shown):
            yield f"| {others:,} others | {sum(counts.values()) - sum(count for _, count in shown):,} |"


def _safe(text: str) -> str:
    """Return a producer's text so that it cannot change the page's form."""
    return printable(text[:80]).translate(_ESCAPES)
