"""How a command scores files or runs without a broker: what its options say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.errors import MissingExtraError, ModelError
from knowledgepulse_worker.records.decode import decode_whole
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.settings import Settings, load_settings, override
from knowledgepulse_worker.terminal.config_option import settings_file
from knowledgepulse_worker.tools.common.record_key import KeyBy
from knowledgepulse_worker.tools.common.scored_records import score_json
from knowledgepulse_worker.tools.score.offline import Partitions, embedder_name, make_scorer
from knowledgepulse_worker.tools.score.score_report import report_of
from knowledgepulse_worker.tools.terminal.reports import print_parts


@dataclass(frozen=True)
class Scoring:
    """The values of the options that say how traces are scored and the scores printed.

    Attributes:
        usual_backend: The embedder if neither an option nor a setting names one; None for the settings' own.
    """

    embedding: dict[str, Any]
    config: Path | None
    partitions: int
    key: KeyBy
    as_json: bool | None
    traces: bool
    usual_backend: str | None = None

    @cached_property
    def settings(self) -> Settings:
        """The settings, with those of the embedding that options override."""
        given = {name: value for name, value in self.embedding.items() if value is not None}
        settings = load_settings(settings_file(self.config, connects=False))
        if self.usual_backend is not None and "backend" not in settings.embedding.model_fields_set:
            given.setdefault("backend", self.usual_backend)
        return override(settings, "embedding", given)

    @property
    def prints_lines(self) -> bool:
        """Whether each score is printed as a line of JSON, instead of a table of all."""
        return self.traces or (not sys.stdout.isatty() if self.as_json is None else self.as_json)

    def scorer(self) -> Callable[[bytes], ScoredRecord]:
        """Return a function that scores a trace against those before it; loading a model takes seconds.

        The function raises an InvalidRecordError for what is not a valid trace.

        Raises:
            ModelError, MissingExtraError: the model cannot be loaded; the message names how to do without.
        """
        settings = self.settings
        try:
            embedder = load_embedder(settings.embedding, settings.cache)
        except (ModelError, MissingExtraError) as error:
            raise type(error)(f"`--embedder lexical` needs no model; {error}") from error
        topic = Partitions(self.partitions, self.key, partial(make_scorer, settings, embedder))
        name = embedder_name(settings.embedding)
        return partial(topic.score, settings=settings, embedder=name)

    def line_of(self, scored: ScoredRecord, value: bytes) -> str:
        """Return a score as a line of JSON; with ``--traces``, it ends with the trace in the value."""
        if not self.traces:
            return score_json(scored)
        trace = decode_whole(value.strip(), len(value), self.settings.records.unwrap).content
        return score_json(scored, self.settings.policy.digest, trace)

    def print_table(self, records: Sequence[ScoredRecord], noun: str) -> None:
        """Print the best traces as a table, and a report; see :func:`report_of`."""
        print_parts(*report_of(records, self.settings.policy, noun))
