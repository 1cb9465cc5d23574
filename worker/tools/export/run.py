"""An export: complete what was cut off, then plan, write and publish what is new."""

from __future__ import annotations

import asyncio

import msgspec

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.export.candidates import Candidate, trace_of
from knowledgepulse_worker.tools.export.card import CARD, card
from knowledgepulse_worker.tools.export.collect import Rules, collect
from knowledgepulse_worker.tools.export.manifest import (
    MANIFEST,
    PLAN,
    Export,
    File,
    Manifest,
    Plan,
    read_state,
)
from knowledgepulse_worker.tools.export.options import require_same
from knowledgepulse_worker.tools.export.rows import Files, passes
from knowledgepulse_worker.tools.export.sources import Source
from knowledgepulse_worker.tools.export.store import Store, write


async def export(source: Source, store: Store, rules: Rules) -> list[Export]:
    """Complete the export that was cut off, if any, export what is new, and return what was done.

    Raises:
        InputError: the folder holds another dataset, or something else, or cannot be written.
    """
    manifest, plan = read_state(store, MANIFEST, Manifest), read_state(store, PLAN, Plan)
    before = _own(source, store, rules, manifest, plan)
    if plan is not None and plan.export.number <= len(before.exports):  # it only was not deleted any more
        plan = None
    now = before if plan is None else await _carry_out(plan, source, store, rules, before)
    store.delete(PLAN)
    plan = await collect(source, now, store, rules)
    if plan is not None:
        write(store, PLAN, msgspec.msgpack.encode(plan))
        now = await _carry_out(plan, source, store, rules, now)
        store.delete(PLAN)
    return list(now.exports[len(before.exports) :])


def _own(
    source: Source, store: Store, rules: Rules, manifest: Manifest | None, plan: Plan | None
) -> Manifest:
    """Return the dataset's manifest, empty before its first export; refuse a folder of anything else."""
    choices = rules.choices.as_dict()
    begun = manifest or plan
    if begun is None:
        if store.names():
            raise InputError(
                f"{store.place} holds files but no dataset of `kp-worker export` ({MANIFEST} is missing); "
                "export to an empty folder"
            )
    else:
        both = (begun.source.keys() & source.identity.keys()) or {*begun.source, *source.identity}
        before, now = (
            {f"{name} (id)": each[name] for name in both if name in each}
            for each in (begun.source, source.identity)
        )
        require_same(store.place, begun.choices | before, choices | now)
    return manifest or Manifest(source=source.identity, choices=choices)


async def _carry_out(plan: Plan, source: Source, store: Store, rules: Rules, before: Manifest) -> Manifest:
    """Write a plan's files, and publish them."""
    number, new = plan.export.number, dict[str, File]()
    for wanted in passes(plan.rows):
        files = Files(store.staging, number, rules.choices.formats, rules.dimensions)
        for part, offsets in plan.export.offsets.items():
            async for record in source.read(part, range(*offsets)):
                planned = wanted.pop((part, record.offset), None)
                if planned is not None:
                    one = rules.candidate(record, plan.since_ms)
                    if not isinstance(one, Candidate):
                        raise InputError(f"{part}/{record.offset} has changed since the export was planned")
                    files.add(one, planned, trace_of(record, one, rules.choices))
        if wanted:
            raise InputError(
                f"{len(wanted)} records of the unfinished export {number} have been deleted since, such as "
                f"{'/'.join(map(str, next(iter(wanted))))}; delete {PLAN} to export what is left"
            )
        new |= dict(files.close())
    for path in new:
        await asyncio.to_thread(store.publish, path)
    manifest = msgspec.structs.replace(
        before,
        source=before.source | plan.source,
        exports=(*before.exports, plan.export),
        files=before.files | new,
    )
    store.require_claim()
    text = card(manifest)
    manifest.files[CARD] = File.of(text)
    write(store, CARD, text)
    write(store, MANIFEST, manifest.to_json())
    return manifest
