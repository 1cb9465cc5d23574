"""A scorer remembers only the vectors that the formula compares with."""

import numpy as np
import pytest

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.scoring import Scorer, VectorCache, embedding_text

EAST, NORTH = np.eye(2, dtype=np.float32)


@pytest.fixture
def scorer() -> Scorer:
    return Scorer(policy=Policy(threshold=1), cache=VectorCache(2, 2))


def test_without_an_embedder_the_real_traces_score_as_the_reference(real_traces, reference_scores):
    scorer = Scorer()
    traces = [ReasoningTrace.model_validate_json(line) for line in real_traces]

    scores = {trace.id: scorer.evaluate(trace).quality_score for trace in traces}

    assert len(scores) == 154
    assert scores == pytest.approx(
        {expected["id"]: expected["score_no_embedder"] for expected in reference_scores}, rel=0, abs=1e-9
    )


def test_without_an_embedder_novelty_is_unknown_and_nothing_is_remembered(make_trace):
    scorer = Scorer()

    scores = [scorer.evaluate(make_trace("thought")) for _ in range(2)]

    assert [(score.novelty, score.nearest) for score in scores] == [(0.5, None)] * 2
    assert scorer.state.cache.size == 0


def test_each_trace_is_compared_with_the_earlier_ones(scorer, make_trace):
    """Including rejected ones, as all are here."""
    first, second, third = (make_trace("thought") for _ in range(3))

    assert scorer.evaluate_embedded(first, EAST).novelty == 0.5
    assert scorer.evaluate_embedded(second, NORTH).novelty == 1
    repeated = scorer.evaluate_embedded(third, EAST)
    assert (repeated.novelty, repeated.nearest, repeated.decision) == (0, first.id, "rejected")


def test_the_embedder_gets_the_other_text_if_it_is_chosen(make_trace):
    texts = []

    def embed(text):
        texts.append(text)
        return EAST

    trace = make_trace("thought", "tool_call")
    trace.steps[1].input = {"command": "ls"}
    scorer = Scorer(embed, cache=VectorCache(2, 2), text="agent")
    scorer.evaluate(trace)

    assert texts == [embedding_text(trace, "agent")] == ["Do it command ls"]


def test_an_empty_cache_passed_in_is_used(make_trace):
    """A cache without entries is falsy."""
    cache = VectorCache(2, 2)

    Scorer(cache=cache).evaluate_embedded(make_trace("thought"), EAST)

    assert cache.size == 1


def test_an_error_while_scoring_leaves_the_cache_unchanged(scorer, make_trace, monkeypatch):
    """The record becomes a dead letter; a vector without an outcome would change later scores."""

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("knowledgepulse_worker.scoring.scorer.score_trace", fail)

    with pytest.raises(ZeroDivisionError):
        scorer.evaluate_embedded(make_trace("thought"), EAST)

    assert scorer.state.cache.size == 0
