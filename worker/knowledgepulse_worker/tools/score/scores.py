"""Traces with their scores: the best of them in a file, and all of them on a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from weakref import finalize

import msgspec

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.message_text import counted, printable
from knowledgepulse_worker.records.decode import decode_whole, with_quality_score
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import EmbeddingSettings, Settings
from knowledgepulse_worker.tools.score.offline import embedder_name, make_scorer, score_line
from knowledgepulse_worker.tools.score.score_report import passing_ranks
from knowledgepulse_worker.tools.terminal.lines import file_errors
from knowledgepulse_worker.tools.terminal.reports import write_text


class Scores:
    """Traces with their scores. A notebook shows them as a page.

    The traces wait in a temporary file, since only the scores of all tell which are the best.

    Args:
        settings: the policy, and how values are read.

    Attributes:
        records: the scored traces, in the order in which they were scored.
        settings: the policy, and how values are read.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.records: list[ScoredRecord] = []
        self._ends = [0]
        self._values = TemporaryFile()  # noqa: SIM115 - as long as this object
        finalize(self, self._values.close)

    def add(self, record: ScoredRecord, value: bytes) -> None:
        """Add a scored trace.

        Args:
            record: its score.
            value: its JSON, which gets the score as ``metadata.quality_score``.
        """
        trace = decode_whole(value, len(value), self.settings.records.unwrap).content
        self._values.write(with_quality_score(trace, record.score.quality_score) + b"\n")
        self.records.append(record)
        self._ends.append(self._values.tell())

    def order(self) -> list[int]:
        """Return the numbers of the traces, from 0, the best first."""
        return sorted(range(len(self.records)), key=lambda at: -self.records[at].score.quality_score)

    def value(self, at: int) -> bytes:
        """Return the JSON of a trace, and a line's end."""
        self._values.seek(self._ends[at])
        return self._values.read(self._ends[at + 1] - self._ends[at])

    def passing(self, order: list[int]) -> list[int]:
        """Return those of ordered traces that pass: by the policy, or else by a share of a fifth."""
        ranks = passing_ranks([self.records[at] for at in order], self.settings.policy)
        return [at for rank, at in enumerate(order, start=1) if rank in ranks]

    def keep(self, path: Path) -> str:
        """Write the traces that pass to a file, the best first; return in words what was written.

        Raises:
            InputError: the file cannot be written.
        """
        passing = self.passing(self.order())
        with file_errors(path, "written"), path.open("wb") as file:
            file.writelines(map(self.value, passing))
        own = self.settings.policy.has_own_rule
        which = "what the policy passes" if own else "the best fifth of each domain"
        traces = counted(len(self.records), "trace")
        return f"kept: {len(passing):,} of {traces}, {which}, in {printable(str(path))}"

    def html(self, *, content: bool = True) -> str:
        """Return a page that needs nothing else: no server and no request.

        Args:
            content: whether it has texts, names of tools, files and agents. Without them, it has scores,
                domains, endings and the types of steps.
        """
        from knowledgepulse_worker.tools.score.scores_page import page_of_scores  # noqa: PLC0415 - imports this

        return page_of_scores(self, content=content)

    def save(self, path: Path, *, content: bool = True) -> None:
        """Write the page to a file; see :meth:`html`.

        Raises:
            InputError: the file cannot be written.
        """
        write_text(path, self.html(content=content))

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        page = self.html().replace("&", "&amp;").replace('"', "&quot;")
        style = "width: 100%; height: 900px; border: 0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def score_traces(
    traces: Iterable[ReasoningTrace | Mapping[str, Any] | str | bytes], settings: Settings | None = None
) -> Scores:
    """Score traces as `kp-worker score` does, each against those before it.

    Args:
        traces: traces, or their JSON as objects or texts.
        settings: the policy and the embedder; by default, those of an empty file, but with the embedder
            `lexical`, which needs no model.

    Returns:
        The scores, which a notebook shows as a page.

    Raises:
        InvalidRecordError: one is not a valid trace.
        ModelError, MissingExtraError: the model cannot be loaded.
    """
    settings = settings or Settings(embedding=EmbeddingSettings(backend="lexical"))
    scores = Scores(settings)
    scorer = make_scorer(settings, load_embedder(settings.embedding, settings.cache))
    embedder = embedder_name(settings.embedding)
    for number, trace in enumerate(traces, start=1):
        value = _json_of(trace)
        scores.add(score_line(value, scorer, settings, str(number), embedder=embedder), value.strip())
    return scores


def _json_of(trace: ReasoningTrace | Mapping[str, Any] | str | bytes) -> bytes:
    match trace:
        case ReasoningTrace():
            return trace.to_json()
        case bytes():
            return trace
        case str():
            return trace.encode("utf-8", "surrogatepass")
        case _:
            return msgspec.json.encode(trace)
