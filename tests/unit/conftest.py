"""Scored records, in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.cli.entry import main
from knowledgepulse_worker.policy import Policy, Reading
from knowledgepulse_worker.records.decode_content import counts_of
from knowledgepulse_worker.scoring import Content, Counts, Score, ScoredRecord, Scorer
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.common.scored_records import score_json
from knowledgepulse_worker.tools.score.offline import make_scorer, score_line


@pytest.fixture(autouse=True)
def _client_logs_as_before() -> Iterator[None]:
    """Undo what a command does to its Kafka client's logger."""
    logger = logging.getLogger("aiokafka")
    level, filters = logger.level, logger.filters[:]
    yield
    logger.setLevel(level)
    logger.filters[:] = filters


@pytest.fixture
def kp_worker() -> Callable[..., Result]:
    """Run a command and return its result."""

    def run(*arguments: object, **options: Any) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)

    return run


def counts_of_calls(calls: int = 1, repeated: int = 0) -> Counts:
    """Return the counts of a trace that consists of calls."""
    return Counts(
        calls, 0, calls, 0, 0, 10 * calls, 0, 0, 4, 1, calls, repeated, 0, False, False, False, False
    )


@pytest.fixture(scope="session")
def make_counts() -> Callable[..., Counts]:
    """Create the counts of a trace that consists of calls."""
    return counts_of_calls


@pytest.fixture(scope="session")
def make_record() -> Callable[..., ScoredRecord]:
    """Create a scored record with these dimensions: complexity, novelty, tool diversity, confidence."""

    def make(
        dimensions: tuple[float, ...] = (0.5, 0.5, 0.5, 0.5),
        domain: str = "default",
        overrides: tuple[str, ...] = (),
        *,
        id: str = "kp:trace:1",  # noqa: A002 - the field's name
        success: bool = True,
        nearest: str | None = None,
        visibility: str = "network",
        privacy_level: str = "aggregated",
        policy: Policy | None = None,
        **others: Any,
    ) -> ScoredRecord:
        policy = policy or Policy()
        profile = policy.profile(domain)
        others.setdefault("counts", counts_of_calls())
        score = Score(0, *dimensions, overrides, profile.domain, profile.threshold, nearest)
        confidence = score.outcome_confidence if success else min(1.0, score.outcome_confidence / 0.3)
        record = ScoredRecord(
            source=f"raw-traces/0/{id}",
            id=id,
            task_domain=domain,
            visibility=visibility,
            privacy_level=privacy_level,
            success=success,
            confidence=confidence,
            score=score,
            **others,
        )
        return replace(record, score=record.under(policy))

    return make


@pytest.fixture(scope="session")
def make_content() -> Callable[..., Content]:
    """Create the content of a trace."""

    def make(native_id: str | None = None) -> Content:
        return Content("Do it", ("thought: First",), "Done", native_id)

    return make


@pytest.fixture(scope="session")
def reference_records(real_traces: list[bytes], reference_scores: list[dict[str, Any]]) -> list[ScoredRecord]:
    """Return the real traces with the SDK's novelty, derived from its contribution to the SDK's score."""
    scorer = Scorer()
    records = []
    for line, reference in zip(real_traces, reference_scores, strict=True):
        trace = ReasoningTrace.model_validate_json(line)
        score = scorer.evaluate(trace)
        weight = scorer.policy.profile(score.domain).weights.novelty
        added = (reference["score_minilm_256_tokens"] - reference["score_no_embedder"]) / weight
        scored = msgspec.structs.replace(score, novelty=score.novelty + added)
        record = ScoredRecord.of(trace.id, trace, scored, counts=counts_of(line, Reading.WORDS))
        records.append(replace(record, score=record.under(scorer.policy)))
    return records


@pytest.fixture(scope="session")
def scored(tmp_path_factory: pytest.TempPathFactory, real_traces: list[bytes]) -> Path:
    """Return a file of the real traces, scored without an embedder."""
    scorer = make_scorer(Settings(), None)
    file = tmp_path_factory.mktemp("scored") / "scored.jsonl"
    scored = (score_line(line, scorer, Settings(), embedder="none") for line in real_traces)
    file.write_text("\n".join(map(score_json, scored)) + "\n")
    return file
