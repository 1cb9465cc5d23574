"""The rows of a planned export, written to staged files: Parquet, and as chosen chat messages and ATIF."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knowledgepulse_worker.extras import extra
from knowledgepulse_worker.records.decode import decode_members
from knowledgepulse_worker.records.entry import decode_vector
from knowledgepulse_worker.tools.export.candidates import Candidate
from knowledgepulse_worker.tools.export.manifest import File, Planned
from knowledgepulse_worker.tools.export.messages import chat_of, trajectory_of
from knowledgepulse_worker.tools.export.options import TABLE, Format
from knowledgepulse_worker.tools.export.turns import Conversation

if TYPE_CHECKING:
    import pyarrow as pa

MOST_TARGETS = 128
"""Targets that are written in one pass over the source: each has a file open."""

_BUFFER = 67_108_864
"""Bytes of traces in memory; beyond it the largest target's become a row group."""

_LINES: dict[Format, Callable[[Candidate, Conversation], dict[str, Any]]] = {
    "messages": lambda one, conversation: chat_of(one.members.id, conversation),
    "atif": lambda one, conversation: trajectory_of(one.members.id, agent_of(one), conversation),
}


def _score_part(name: str) -> Callable[[Candidate], Any]:
    return lambda one: one.parts and getattr(one.parts, name)


_COLUMNS: dict[str, tuple[str, Callable[[Candidate], Any]]] = {
    "id": ("string", lambda one: one.members.id),
    "source": ("string", lambda one: one.source),
    "domain": ("string", lambda one: one.profile),
    **{
        name: ("string", attrgetter(f"members.metadata.{name}"))
        for name in ("task_domain", "agent_id", "framework", "visibility")
    },
    "success": ("bool", lambda one: one.members.metadata.success),
    "confidence": ("double", lambda one: one.members.outcome.confidence),
    "score": ("double", lambda one: one.score),
    **{
        name: ("double", _score_part(name))
        for name in ("threshold", "complexity", "novelty", "tool_diversity", "outcome_confidence")
    },
    "nearest": ("string", _score_part("nearest")),
    "policy": ("string", lambda one: one.policy),
    "objective": ("string", lambda one: one.members.task.objective),
    "result_summary": ("string", lambda one: one.members.outcome.result_summary),
}
"""The columns of one value: their type, by pyarrow's name, and where the value is."""


def schema(dimensions: int) -> pa.Schema:
    """Return all columns; without an embedder, ``dimensions`` is 0."""
    with extra("export"):
        import pyarrow as pa  # noqa: PLC0415 - slow to import
    return pa.schema(
        [
            *((name, pa.type_for_alias(kind)) for name, (kind, _) in _COLUMNS.items()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("overrides", pa.list_(pa.string())),
            ("groups", pa.list_(pa.string())),
            ("trace", pa.string()),
            ("vector", pa.list_(pa.float32(), dimensions) if dimensions else pa.null()),
        ]
    )


def row_of(candidate: Candidate, planned: Planned, trace: bytes) -> dict[str, Any]:
    """Return a row; ``trace`` is the JSON of the trace with the row's score."""
    return {name: value(candidate) for name, (_, value) in _COLUMNS.items()} | {
        "timestamp": candidate.timestamp_ms,
        "overrides": candidate.parts and list(candidate.parts.overrides),
        "groups": planned.groups,
        "trace": trace.decode(),
        "vector": decode_vector(planned.vector) if planned.vector else None,
    }


def agent_of(candidate: Candidate) -> str:
    """Return the name of the agent, as far as it is known."""
    metadata = candidate.members.metadata
    return metadata.agent_id or metadata.framework or "unknown"


class Files:
    """The staged files of an export, one for each target and format.

    Args:
        folder: the local folder.
        number: of the export, which names its files.
        formats: what is written besides Parquet.
        dimensions: of the vectors.
    """

    def __init__(self, folder: Path, number: int, formats: Sequence[Format], dimensions: int) -> None:
        self._folder = folder
        self._name = f"{number:05}"
        self._formats = formats
        self._schema = schema(dimensions)
        self._writers: dict[str, Any] = {}
        self._buffers: dict[str, list[dict[str, Any]]] = {}
        self._sizes: Counter[str] = Counter()

    def add(self, candidate: Candidate, planned: Planned, trace: bytes) -> None:
        """Add a row to the files of its target."""
        target = planned.target
        self._buffers.setdefault(target, []).append(row_of(candidate, planned, trace))
        self._sizes[target] += len(trace)
        conversation = decode_members(trace, Conversation) if self._formats else None
        for name in self._formats if conversation else ():
            line = json.dumps(_LINES[name](candidate, conversation), ensure_ascii=False)  # type: ignore[arg-type]
            with self._path(name, target).open("a", encoding="utf-8", errors="replace") as file:
                file.write(f"{line}\n")
        while self._sizes.total() > _BUFFER:
            self._flush(self._sizes.most_common(1)[0][0])

    def close(self) -> Iterator[tuple[str, File]]:
        """Complete the files; yield the path and the description of each."""
        for target in sorted(self._buffers):
            self._flush(target)
            self._writers[target].close()
            for name in (TABLE, *self._formats):
                path = self._path(name, target)
                yield path.relative_to(self._folder).as_posix(), File.of(path.read_bytes())

    def _flush(self, target: str) -> None:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415

        if target not in self._writers:
            self._writers[target] = parquet.ParquetWriter(
                self._path(TABLE, target), self._schema, compression="zstd"
            )
        if rows := self._buffers[target]:
            self._writers[target].write_table(pa.Table.from_pylist(rows, self._schema))
        self._buffers[target] = []
        self._sizes.pop(target, None)

    def _path(self, name: str, target: str) -> Path:
        path = self._folder / name / target / f"{self._name}.{'parquet' if name == TABLE else 'jsonl'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def passes(rows: Sequence[Planned]) -> Iterator[dict[tuple[str, int], Planned]]:
    """Yield the rows by part and offset, those of so many targets at a time that their files can be open."""
    targets = sorted({row.target for row in rows})
    for start in range(0, len(targets), MOST_TARGETS):
        now = {*targets[start : start + MOST_TARGETS]}
        yield {(row.part, row.offset): row for row in rows if row.target in now}
