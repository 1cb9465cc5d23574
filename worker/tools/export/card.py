"""The dataset's card: ``README.md`` with the hub's metadata, made of the manifest alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from knowledgepulse_worker.terminal.text import printable
from knowledgepulse_worker.tools.export.candidates import REASONS
from knowledgepulse_worker.tools.export.manifest import Manifest
from knowledgepulse_worker.tools.export.options import SPLITS, TABLE

CARD = "README.md"
_SHOWN = 20
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
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
    """Yield the block that tells the hub, and ``datasets.load_dataset``, where which split is."""
    splits = manifest.total("split")
    size = next((name for most, name in _SIZES if sum(splits.values()) < most), "n>1M")
    yield f"---\ntags: [agent, traces, knowledgepulse]\nsize_categories: [{size}]"
    if splits:  # of other formats than the table's, `datasets` would need a repository each
        yield "configs:\n- config_name: default\n  data_files:"
        yield from (f"  - {{split: {one}, path: '{TABLE}/{one}/**'}}" for one in SPLITS if one in splits)
    yield "---\n"


def _text(manifest: Manifest) -> Iterator[str]:
    exports, choices = manifest.exports, manifest.choices
    days = [*manifest.total("day")] or ["no day"]
    yield f"# Agent traces of {', '.join(_safe(name) for name in manifest.source)}\n"
    yield (
        f"{sum(manifest.total('split').values())} scored traces of {days[0]} to {days[-1]} (UTC), of "
        f"{sum(one.read for one in exports)} records, in {len(exports)} exports by `kp-worker export`. "
        "`manifest.json` has the hash of each file, and the offsets that each export read.\n"
    )
    for name in choices["formats"]:
        yield f"`{name}/` has them as lines, too: `load_dataset('json', data_files='{name}/train/**')`.\n"
    yield "Traces that share a run, a task or an objective, or whose vectors have a cosine of"
    yield f"{choices['similarity']:g} or more ({_safe(choices['embedder'])}), lie in one split; seed"
    yield f"{choices['seed']}."
    for name in _TABLES:
        yield from _table(name.capitalize(), manifest.total(name))
    yield "\n## What is not in it\n"
    for name, listed in (("visibility", "visibilities"), ("privacy level", "privacy_levels")):
        leaving = ", ".join(one for one in choices[listed] if one != "private") or "none"
        yield f"Traces leave whose {name} is one of: {leaving}."
    yield f"They are {'redacted copies' if choices['redacted'] else 'not redacted'}, and the SDK's cleaning"
    yield f"{'finds nothing in them' if choices['require_clean'] else 'was not asked'}. Before an export read"
    yield f"them, {sum(one.deleted for one in exports)} offsets had been deleted. Selected by"
    selection = {name: choices[name] for name in ("domains", "min_score", "policy", "best", "diverse")}
    yield f"`{json.dumps(selection)}`."
    dropped = {text: sum(one.dropped.get(name, 0) for one in exports) for name, text in REASONS.items()}
    yield from _table("Records left out", {text: count for text, count in dropped.items() if count})


def _table(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    if counts:
        shown = list(counts.items())[:_SHOWN]
        yield f"\n| {title} | number |\n|---|---|"
        yield from (f"| {_safe(name)} | {count} |" for name, count in shown)
        if others := len(counts) - len(shown):
            yield f"| {others} others | {sum(counts.values()) - sum(count for _, count in shown)} |"


def _safe(text: str) -> str:
    """Return a producer's text so that it cannot change the page's form."""
    return printable(text[:80]).translate(_ESCAPES)
