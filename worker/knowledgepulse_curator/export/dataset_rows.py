"""Write the rows of a planned export to staged files: Parquet and, if chosen, chat messages and ATIF."""

from __future__ import annotations

import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyarrow import parquet

from knowledgepulse_curator.export.candidates import Candidate
from knowledgepulse_curator.export.chat_messages import (
    Conversation,
    chat_of,
    trajectory_of,
    without_tail,
)
from knowledgepulse_curator.export.manifest import (
    CUT,
    NOTHING_SAID,
    TABLE,
    Choices,
    File,
    Format,
    PlannedRecord,
)
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.records.decode import decode_members
from knowledgepulse_worker.records.ledger_records import decode_vector
from knowledgepulse_worker.scoring import Dimensions

_BUFFER = 67_108_864
"""Bytes of traces and lines that are kept in memory before they are written, to one file per target."""

_LONGEST_NAME = 200
"""Largest number of characters of a folder's name; file systems accept 255."""


class Line(NamedTuple):
    """A trace's line in a format.

    Attributes:
        format: the format.
        text: the line; empty if the format has none for the trace.
        cut: what is left out of chat messages, a value of the fact :data:`MESSAGES`; empty for nothing.
    """

    format: Format
    text: str
    cut: str = ""


def lines_of(candidate: Candidate, trace: bytes, choices: Choices) -> Iterator[Line]:
    """Yield a trace's line in each format.

    Raises:
        InvalidRecordError: it contains a number that is too large for a double.
        ValueError: it contains an integer with more digits than Python converts.
    """
    for name in choices.also:
        conversation = decode_members(trace, Conversation)
        if name == "atif":
            trajectory = trajectory_of(candidate.members.id, candidate.agent or "unknown", conversation)
            yield Line(name, _json(trajectory))
            continue
        whole = chat_of(
            candidate.members.id, conversation, weights=choices.weights, arguments=choices.arguments
        )
        kept = without_tail(whole) if choices.without_tail else whole
        if kept["messages"]:
            is_cut = len(kept["messages"]) < len(whole["messages"])
            yield Line(name, _json(kept), CUT if is_cut else "")
        else:
            yield Line(name, "", NOTHING_SAID)


def _json(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"


def _score_part(name: str) -> Callable[[Candidate], Any]:
    return lambda candidate: candidate.parts and getattr(candidate.parts, name)


_COLUMNS: dict[str, tuple[str, Callable[[Candidate], Any]]] = {
    "id": ("string", lambda candidate: candidate.members.id),
    "source": ("string", lambda candidate: candidate.source),
    "domain": ("string", lambda candidate: candidate.domain),
    **{
        name: ("string", attrgetter(f"members.metadata.{name}"))
        for name in ("task_domain", "agent_id", "framework", "visibility")
    },
    "success": ("bool", lambda candidate: candidate.members.metadata.success),
    "confidence": ("double", lambda candidate: candidate.members.outcome.confidence),
    "score": ("double", lambda candidate: candidate.score),
    **{
        name: ("double", _score_part(name))
        for name in ("threshold", *(dimension.name for dimension in fields(Dimensions)))
    },
    "nearest": ("string", _score_part("nearest")),
    "policy": ("string", lambda candidate: candidate.policy),
    "objective": ("string", lambda candidate: candidate.members.task.objective),
    "result_summary": ("string", lambda candidate: candidate.members.outcome.result_summary),
}
"""The columns with a single value: the name of their type in pyarrow, and a function for the value."""


def _schema(dimensions: int) -> pa.Schema:
    """Return all columns; without an embedder, ``dimensions`` is 0."""
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


def read_rows(path: str, content: bytes, columns: Sequence[str], dimensions: int | None) -> pa.Table:
    """Return columns of a dataset's table; raise an InputError if no export wrote it.

    Args:
        path: the table's path, for the error.
        content: the file's content.
        columns: the columns' names.
        dimensions: the number of dimensions of the vectors; None if no column has vectors.
    """
    wanted = pa.schema([_schema(dimensions or 0).field(name) for name in columns])
    try:
        table = parquet.read_table(io.BytesIO(content), columns=list(columns))
        if table.schema.equals(wanted):
            return table
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InputError(f"{path}: was not written by `kp-worker export`: {error}") from None
    raise InputError(f"{path}: was not written by `kp-worker export`: it has other columns")


def _folder(name: str) -> str:
    """Return a valid name of a folder for any domain."""
    quoted = quote(name, safe=" ")
    if len(quoted) > _LONGEST_NAME:
        quoted = f"{quoted[:_LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


@dataclass
class Files:
    """The staged files of an export.

    Attributes:
        folder: the staging folder.
        number: the number of the export, which is part of the files' names.
        choices: the options of the export.
        dimensions: the number of dimensions of the vectors.
    """

    folder: Path
    number: int
    choices: Choices
    dimensions: int

    def __post_init__(self) -> None:
        self._schema = _schema(self.dimensions)
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._lines: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._size = self._written = 0

    def add(self, candidate: Candidate, planned: PlannedRecord, trace: bytes) -> Iterator[tuple[str, File]]:
        """Add a row, and yield the files that this completes.

        ``trace``: the JSON of the trace with the row's score.
        """
        row = {name: value(candidate) for name, (_, value) in _COLUMNS.items()} | {
            "timestamp": candidate.timestamp_ms,
            "overrides": candidate.parts and list(candidate.parts.overrides),
            "groups": planned.groups,
            "trace": trace.decode(),
            "vector": decode_vector(planned.vector) if planned.vector else None,
        }
        target = f"{planned.split}/{_folder(candidate.domain)}/{candidate.day}"
        self._rows[target].append(row)
        for line in lines_of(candidate, trace, self.choices):
            if line.text:
                self._lines[line.format, target].append(line.text)
                self._size += len(line.text)
        self._size += len(trace)
        if self._size > _BUFFER:
            yield from self.write()

    def write(self) -> Iterator[tuple[str, File]]:
        """Write the added rows; yield the path and the description of each file."""
        self._written += 1
        for target, rows in self._rows.items():
            path = self._path(TABLE, target, "parquet")
            parquet.write_table(pa.Table.from_pylist(rows, self._schema), path, compression="zstd")
            yield self._described(path)
        for (name, target), lines in self._lines.items():
            path = self._path(name, target, "jsonl")
            path.write_text("".join(lines), encoding="utf-8", errors="replace")
            yield self._described(path)
        self._rows.clear()
        self._lines.clear()
        self._size = 0

    def _path(self, name: str, target: str, suffix: str) -> Path:
        path = self.folder / name / target / f"{self.number:05}-{self._written}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _described(self, path: Path) -> tuple[str, File]:
        return path.relative_to(self.folder).as_posix(), File.of(path.read_bytes())
