"""Check a dataset: the hash of each file, and each trace against the source that it was read from."""

from __future__ import annotations

import io
from collections.abc import Iterator

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.tools.export.candidates import Candidate, trace_of
from knowledgepulse_worker.tools.export.collect import Rules
from knowledgepulse_worker.tools.export.manifest import MANIFEST, File, Manifest, read_state
from knowledgepulse_worker.tools.export.options import TABLE
from knowledgepulse_worker.tools.export.sources import Source
from knowledgepulse_worker.tools.export.store import Store


async def check(source: Source, store: Store, rules: Rules) -> list[str]:
    """Return what is wrong, in words; empty if nothing is.

    Records that the source does not hold any more are not missed.

    Raises:
        InputError: the folder has no dataset.
    """
    manifest = read_state(store, MANIFEST, Manifest)
    if manifest is None:
        raise InputError(f"{store.place} has no dataset: {MANIFEST} is missing")
    traces: dict[tuple[str, str], str] = {}
    problems = list(_wrong_files(store, manifest, traces))
    read = 0
    for part, held in source.ranges.items():
        for start, stop in (one.offsets[part] for one in manifest.exports if part in one.offsets):
            async for record in source.read(part, range(max(start, held.start), min(stop, held.stop))):
                read += 1
                one = rules.candidate(record, None)
                if isinstance(one, Candidate):
                    trace = trace_of(record, one, rules.choices)
                    kept = traces.pop((one.source, one.members.id), None)
                    if kept is not None and kept.encode() != trace:
                        problems.append(f"{one.source}: differs from its record in {part}")
    whole = all(
        source.ranges.get(part, range(0)).start <= start
        for one in manifest.exports
        for part, (start, _) in one.offsets.items()
    )
    if whole and traces:
        problems += [f"{name}: has no record in the source" for name, _ in sorted(traces)[:20]]
    if whole and read != (counted := sum(one.read for one in manifest.exports)):
        problems.append(f"{MANIFEST} counts {counted} records, the source has {read}")
    return problems


def _wrong_files(store: Store, manifest: Manifest, traces: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yield the files that are missing or differ; fill in the traces of the others, by source and id."""
    from pyarrow import parquet  # noqa: PLC0415 - slow to import

    for path, file in manifest.files.items():
        content = store.read(path)
        if content is None:
            yield f"{path}: is missing"
        elif File.of(content) != file:
            yield f"{path}: differs from its hash in {MANIFEST}"
        elif path.startswith(f"{TABLE}/"):
            columns = parquet.read_table(io.BytesIO(content), columns=["source", "id", "trace"]).to_pydict()
            traces.update(
                zip(zip(columns["source"], columns["id"], strict=True), columns["trace"], strict=True)
            )
