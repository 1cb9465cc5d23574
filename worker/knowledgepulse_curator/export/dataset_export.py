"""Complete an interrupted export, then plan, write and publish the new rows; check a dataset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec

from knowledgepulse_curator.export.candidates import Candidate, LeftOutRecord, Rules
from knowledgepulse_curator.export.dataset_card import cards
from knowledgepulse_curator.export.dataset_rows import Files, read_rows
from knowledgepulse_curator.export.dataset_store import Store
from knowledgepulse_curator.export.examine import examined
from knowledgepulse_curator.export.export_inputs import ExportInputs
from knowledgepulse_curator.export.export_plan import collect
from knowledgepulse_curator.export.manifest import (
    MANIFEST,
    PLAN,
    TABLE,
    Export,
    File,
    Manifest,
    Plan,
    read_state,
    require_same,
    require_sound,
)
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted


async def export(inputs: ExportInputs, store: Store, rules: Rules) -> list[Export]:
    """Complete an interrupted export, if any, then export the new records; return the exports.

    Raises:
        InputError: the folder contains another dataset or other files, or cannot be written.
    """
    manifest, plan = read_state(store, MANIFEST, Manifest), read_state(store, PLAN, Plan)
    for begun in (manifest, plan):
        if begun is not None:
            require_same(store.name, begun, inputs.identity, rules.choices)
    if not (manifest or plan) and store.names():
        raise InputError(
            f"{store.name}: contains files, but no dataset of `kp-worker export` ({MANIFEST} is missing); "
            "export to an empty folder"
        )
    before = now = manifest or Manifest(source=inputs.identity, choices=rules.choices)
    if plan is not None and plan.export.number > len(before.exports):  # otherwise, its export is complete
        require_sound(store.name, plan, before, inputs.ranges, rules.dimensions)
        now = await _carry_out(plan, inputs, store, rules, before, examine=True)
    store.delete(PLAN)
    plan = await collect(inputs, now, store, rules)
    if plan is not None:
        store.write(PLAN, msgspec.msgpack.encode(plan))
        now = await _carry_out(plan, inputs, store, rules, now, examine=False)
        store.delete(PLAN)
    return list(now.exports[len(before.exports) :])


async def _carry_out(
    plan: Plan, inputs: ExportInputs, store: Store, rules: Rules, before: Manifest, *, examine: bool
) -> Manifest:
    """Write and publish a plan's files.

    ``examine``: whether to examine the traces again, since others may have changed the plan.
    """
    wanted, new = {(row.part, row.offset): row for row in plan.rows}, dict[str, File]()
    files = Files(store.staging, plan.export.number, rules.choices, rules.dimensions)
    for part, offsets in plan.export.offsets.items():
        async for record in inputs.read(part, range(*offsets)):
            planned = wanted.pop((part, record.offset), None)
            if planned is not None:
                candidate = rules.candidate(record, plan.changed_ms.get(part))
                if not isinstance(candidate, Candidate) or (
                    examine and isinstance(await examined(rules, candidate, record), LeftOutRecord)
                ):
                    raise InputError(
                        f"{part}/{record.offset}: has changed since the export was planned; "
                        f"delete {PLAN} to plan it again"
                    )
                new.update(files.add(candidate, planned, rules.trace(record, candidate)))
    if wanted:
        raise InputError(
            f"{counted(len(wanted), 'record')} of unfinished export {plan.export.number} had been deleted, "
            f"such as {'/'.join(map(str, next(iter(wanted))))}; delete {PLAN} to export the others"
        )
    new.update(files.write())
    for path in sorted(new):
        await asyncio.to_thread(store.publish, path)
    manifest = msgspec.structs.replace(
        before,
        source=before.source | plan.source,
        exports=(*before.exports, plan.export),
        files=before.files | new,
    )
    store.require_claim()
    for path, content in [*cards(manifest)]:
        manifest.files[path] = File.of(content)
        store.write(path, content)
    store.write(MANIFEST, manifest.to_json())
    return manifest


async def check(inputs: ExportInputs, store: Store, rules: Rules) -> list[str]:
    """Check the hash of each file, and each trace against its record; return the problems in words.

    Records that the inputs no longer hold are not reported.

    Raises:
        InputError: the folder contains no dataset, or one from other inputs.
    """
    manifest = read_state(store, MANIFEST, Manifest)
    if manifest is None:
        raise InputError(f"{store.name}: contains no dataset: {MANIFEST} is missing")
    if not manifest.source.keys() & inputs.identity.keys():
        raise InputError(
            f"{store.name}: was exported from {', '.join(manifest.source)}, not from these topics or files"
        )
    traces: dict[tuple[str, str], str] = {}
    problems = list(_wrong_files(store, manifest, traces))
    read = 0
    async for part, record in _records(inputs, manifest):
        read += 1
        candidate = rules.candidate(record)
        if isinstance(candidate, Candidate):
            kept = traces.pop((candidate.source, candidate.members.id), None)
            if kept is not None and kept.encode() != rules.trace(record, candidate):
                problems.append(f"{candidate.source}: differs from its record in {part}")
    first = {
        part: start for export in reversed(manifest.exports) for part, (start, _) in export.offsets.items()
    }
    if all(part in inputs.ranges and inputs.ranges[part].start <= start for part, start in first.items()):
        problems += [f"{name}: has no record in the topics or files" for name, _ in sorted(traces)[:20]]
        if read != (total := sum(export.read for export in manifest.exports)):
            problems.append(f"{MANIFEST} counts {total:,} records, but the topics or files have {read:,}")
    return problems


async def _records(inputs: ExportInputs, manifest: Manifest) -> AsyncIterator[tuple[str, RawRecord]]:
    """Yield the records that earlier exports read and that still exist, with their parts."""
    for part, held in inputs.ranges.items():
        for start, stop in (export.offsets[part] for export in manifest.exports if part in export.offsets):
            async for record in inputs.read(part, range(max(start, held.start), min(stop, held.stop))):
                yield part, record


def _wrong_files(store: Store, manifest: Manifest, traces: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yield the problems of files; add the traces of the sound files to ``traces``, by source and id."""
    for path, file in manifest.files.items():
        content = store.read(path)
        if content is None:
            yield f"{path}: is missing"
        elif File.of(content) != file:
            yield f"{path}: differs from its hash in {MANIFEST}"
        elif path.startswith(f"{TABLE}/"):
            columns = read_rows(path, content, ("source", "id", "trace"), None).to_pydict()
            identities = zip(columns["source"], columns["id"], strict=True)
            traces.update(zip(identities, columns["trace"], strict=True))
