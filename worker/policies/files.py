"""Scored traces from files: those that ``kp-worker score`` wrote, or raw traces, which are scored now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from worker.errors import InputError, RejectedRecord
from worker.offline import score_line
from worker.policies.records import ScoredRecord, read_line
from worker.scoring import Scorer

MakeScorer = Callable[[], Scorer]


def read_files(paths: Iterable[Path], make_scorer: MakeScorer, max_bytes: int) -> Iterator[ScoredRecord]:
    """Yield the traces of files, a line each; raw ones are scored as one partition's stream would be.

    Args:
        paths: each holds lines of one kind; the first tells which.
        make_scorer: called when the first raw trace is met, as it may load a model.
        max_bytes: the largest raw trace.

    Raises:
        InputError: a file is empty, or a line is not what it should be.
    """
    scorer = cache(make_scorer)
    for path in paths:
        read = None
        for source, line in lines_of(path):
            if read is None:
                read = _read_raw(scorer(), max_bytes) if _is_raw(source, line) else read_line
            try:
                yield read(source, line)
            except (msgspec.MsgspecError, RejectedRecord) as error:
                raise InputError(f"{source}: {_kind(read)}: {error}") from None


def lines_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a file but empty ones, each with its place, ``file:line``.

    Raises:
        InputError: there is none, or the file cannot be read.
    """
    empty = True
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if line := text.strip():
                    empty = False
                    yield f"{path}:{number}", line
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if empty:
        raise InputError(f"{path}: is empty")


def _is_raw(source: str, line: bytes) -> bool:
    try:
        members = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        members = None
    if isinstance(members, dict) and "quality_score" in members:
        return False
    if isinstance(members, dict) and "steps" in members:
        return True
    raise InputError(f"{source}: is neither a line that `kp-worker score` wrote nor a trace")


def _read_raw(scorer: Scorer, max_bytes: int) -> Callable[[str, bytes], ScoredRecord]:
    def read(source: str, line: bytes) -> ScoredRecord:
        scored = score_line(line, scorer, max_bytes)
        return ScoredRecord.of(source, scored.trace, scored.score)

    return read


def _kind(read: Callable[[str, bytes], ScoredRecord]) -> str:
    return "is no line that `kp-worker score` wrote" if read is read_line else "is no trace"
