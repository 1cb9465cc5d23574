"""Scored traces from files: output of ``kp-worker score``, or raw traces, which are scored on the fly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.errors import InputError, InvalidRecordError
from knowledgepulse_worker.records.decode import decode_members, decode_whole
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.scoring import ScoredRecord, Scorer
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.scored_records import read_line
from knowledgepulse_worker.tools.score.offline import embedder_name, make_scorer, score_line
from knowledgepulse_worker.tools.terminal.files import Rejections
from knowledgepulse_worker.tools.terminal.lines import located_lines

_MISSING = msgspec.Raw()


class _Kind(msgspec.Struct):
    """The members that tell what a line is; their values are not read, whatever they hold."""

    quality_score: msgspec.Raw = _MISSING
    steps: msgspec.Raw = _MISSING


def read_files(paths: Iterable[Path], settings: Settings) -> Iterator[ScoredRecord]:
    """Yield the traces of files, one per line; raw traces are scored in order, as in one partition.

    Raw traces above `limits.trace_bytes` are reported and skipped, as a worker and `kp-worker score` do.

    ``paths``: files of lines of one kind, which the first line determines.

    Raises:
        InputError: a file is empty or a line is invalid.
    """
    name = embedder_name(settings.embedding)

    @cache  # only for raw traces, as it may load a model
    def scorer() -> Scorer:
        return make_scorer(settings, load_embedder(settings.embedding, settings.cache))

    def read_raw(source: str, line: bytes) -> ScoredRecord:
        return score_line(line, scorer(), settings, source, embedder=name)

    rejections = Rejections()

    for path in paths:
        raw = None
        for source, line in located_lines(path):
            raw = raw_trace(source, line, settings) is not None if raw is None else raw
            try:
                yield (read_raw if raw else read_line)(source, line)
            except (*DECODE_ERRORS, InvalidRecordError) as error:
                if raw and isinstance(error, InvalidRecordError) and error.reason == "too_large":
                    rejections.show(source, error)  # it is whole: the others can be scored
                    continue
                kind = "a trace" if raw else "output of `kp-worker score`"
                raise InputError(f"{source}: not {kind}: {error}") from None
    rejections.show_rest()


def raw_trace(source: str, line: bytes, settings: Settings) -> bytes | None:
    """Return the trace of a raw line, without its wrapping, and None for output of `score`.

    Raises:
        InputError: the line is neither.
    """
    try:
        members = decode_members(line, _Kind)
    except InvalidRecordError:
        members = _Kind()
    if members.quality_score != _MISSING:
        return None
    if members.steps != _MISSING:
        return line
    with suppress(InvalidRecordError):
        return decode_whole(line.strip(), len(line), settings.records.unwrap).content
    raise InputError(
        f"{source}: neither output of `kp-worker score` nor a trace; "
        "`kp-worker convert` makes traces from sessions, spans and chats"
    )
