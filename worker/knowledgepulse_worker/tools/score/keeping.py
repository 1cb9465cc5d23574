"""The traces that pass, in a file of their own."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.records.decode import decode_whole, with_quality_score
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.score.score_report import passing_ranks
from knowledgepulse_worker.tools.terminal.lines import file_errors


class Keeper:
    """Keeps the traces until all are scored, since only then it is known which are the best.

    Args:
        path: the file for those that pass.
        settings: the policy, and how values are read.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self._path, self._settings = path, settings
        self._values = TemporaryFile()  # noqa: SIM115 - closed with this
        self._records: list[ScoredRecord] = []
        self._ends = [0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._values.close()

    def add(self, record: ScoredRecord, value: bytes) -> None:
        """Keep a trace with its score in ``metadata.quality_score``."""
        trace = decode_whole(value, len(value), self._settings.records.unwrap).content
        self._values.write(with_quality_score(trace, record.score.quality_score) + b"\n")
        self._records.append(record)
        self._ends.append(self._values.tell())

    def write(self) -> str:
        """Write those that pass, the best first; return in words what was written.

        Raises:
            InputError: the file cannot be written.
        """
        order = sorted(range(len(self._records)), key=lambda at: -self._records[at].score.quality_score)
        ranks = passing_ranks([self._records[at] for at in order], self._settings.policy)
        with file_errors(self._path, "written"), self._path.open("wb") as file:
            for at in (at for rank, at in enumerate(order, start=1) if rank in ranks):
                self._values.seek(self._ends[at])
                file.write(self._values.read(self._ends[at + 1] - self._ends[at]))
        which = (
            "what the policy passes"
            if self._settings.policy.has_own_rule
            else "the best fifth of each domain"
        )
        traces = counted(len(self._records), "trace")
        return f"kept: {len(ranks):,} of {traces}, {which}, in {printable(str(self._path))}"
