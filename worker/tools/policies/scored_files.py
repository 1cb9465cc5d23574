"""Scored traces from files: output of ``kp-worker score``, or raw traces, which are scored on the fly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from knowledgepulse_worker.errors import InputError, RejectedRecord
from knowledgepulse_worker.records.scored import read_line
from knowledgepulse_worker.scoring import ScoredRecord, Scorer
from knowledgepulse_worker.terminal.lines import without_mark
from knowledgepulse_worker.tools.score.offline import score_line

MakeScorer = Callable[[], Scorer]


def read_files(
    paths: Iterable[Path], make_scorer: MakeScorer, embedder: str, max_bytes: int
) -> Iterator[ScoredRecord]:
    """Yield the traces of files, one per line; raw traces are scored in order, as in one partition.

    ``paths``: files of lines of one kind, which the first line determines. ``make_scorer``: called for the
    first raw trace, as it may load a model.

    Raises:
        InputError: a file is empty or a line is invalid.
    """
    scorer = cache(make_scorer)
    for path in paths:
        read = None
        for source, line in lines_of(path):
            if read is None:
                read = _read_raw(scorer(), embedder, max_bytes) if is_raw(source, line) else read_line
            try:
                yield read(source, line)
            except (msgspec.MsgspecError, RejectedRecord) as error:
                raise InputError(f"{source}: {_kind(read)}: {error}") from None


def lines_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the non-empty lines of a file, each with its location ``file:line``.

    Raises:
        InputError: the file is empty or cannot be read.
    """
    empty = True
    try:
        with path.open("rb") as file:
            for number, text in enumerate(without_mark(file), start=1):
                if line := text.strip():
                    empty = False
                    yield f"{path}:{number}", line
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if empty:
        raise InputError(f"{path}: is empty")


def is_raw(source: str, line: bytes) -> bool:
    """Return whether a line is a raw trace, and not output of ``kp-worker score``.

    Raises:
        InputError: it is neither.
    """
    try:
        members = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        members = None
    if isinstance(members, dict) and "quality_score" in members:
        return False
    if isinstance(members, dict) and "steps" in members:
        return True
    raise InputError(f"{source}: neither output of `kp-worker score` nor a trace")


def _read_raw(scorer: Scorer, embedder: str, max_bytes: int) -> Callable[[str, bytes], ScoredRecord]:
    def read(source: str, line: bytes) -> ScoredRecord:
        scored = score_line(line, scorer, max_bytes)
        return ScoredRecord.of(source, scored.trace, scored.score, embedder, scored.content)

    return read


def _kind(read: Callable[[str, bytes], ScoredRecord]) -> str:
    return "not output of `kp-worker score`" if read is read_line else "not a trace"
