"""Recent events are bounded, displayable, and never fail a lane."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.observe import recent as module
from worker.observe.recent import LAST_RECORDS, LAST_SCORES, MAX_TEXT, SECONDS, Recent

SCORE = {
    "score": 0.4,
    "complexity": 0.1,
    "novelty": 0.2,
    "tool_diversity": 0.3,
    "outcome_confidence": 0.4,
    "overrides": (),
    "domain": "code",
    "threshold": 0.75,
    "nearest": "kp:trace:0",
}
FAILURE = {"reason": "not_json", "exception": "RejectedRecord", "message": "no JSON"}


def finish(recent, outcome="rejected", **changes):
    values = {
        "score": SCORE if outcome != "dead_letter" else None,
        "failure": FAILURE if outcome == "dead_letter" else None,
        "trace_id": "kp:trace:1",
        "objective": "Do it",
        "end_to_end": 0.1,
    }
    recent.finished(outcome, "raw/0/1", **(values | changes))


@pytest.fixture
def seconds(monkeypatch):
    """Return a settable clock."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_memory_is_bounded():
    recent = Recent()
    for number in range(3 * LAST_SCORES):
        recent.scored(0.01)
        finish(recent, "rejected" if number % 2 else "dead_letter", objective="x" * 5000)

        recent.decided(f"agent {number} " + "x" * 5000, None, "rejected")

    assert len(recent.origins) == LAST_SCORES
    assert max(len(origin.agent_id) for origin in recent.origins) == MAX_TEXT
    assert len(recent.scores) == len(recent.scoring_seconds) == len(recent.end_to_end_seconds) == LAST_SCORES
    assert len(recent.rejected) == len(recent.dead_letters) == LAST_RECORDS
    assert max(len(record["objective"]) for record in recent.rejected) == MAX_TEXT


def test_keeps_only_scores_of_published_traces():
    """A scored trace that was then rejected as too large is a dead letter."""
    recent = Recent()
    finish(recent, "contribute", score=SCORE | {"score": 0.8})
    finish(recent, "rejected")
    finish(recent, "dead_letter", score=SCORE)

    assert list(recent.scores) == [("code", 0.8), ("code", 0.4)]
    assert [record["trace_id"] for record in recent.rejected] == ["kp:trace:1"]
    assert recent.dead_letters[0]["score"]["complexity"] == 0.1
    assert recent.dead_letters[0]["reason"] == "not_json"


@given(st.text(st.characters(), max_size=3 * MAX_TEXT))
def test_every_excerpt_is_one_short_line_of_valid_unicode(text):
    recent = Recent()
    finish(recent, objective=text, trace_id=text, score=SCORE | {"nearest": text})

    record = recent.rejected[0]
    for excerpt in (record["objective"], record["trace_id"], record["score"]["nearest"]):
        assert len(excerpt) <= MAX_TEXT
        assert excerpt.splitlines() in ([excerpt], [])
        excerpt.encode()


def test_only_truncated_excerpts_end_with_an_ellipsis():
    recent = Recent()
    finish(recent, objective="x" * MAX_TEXT, trace_id="x" * (MAX_TEXT + 1))

    assert recent.rejected[0]["objective"] == "x" * MAX_TEXT
    assert recent.rejected[0]["trace_id"] == "x" * (MAX_TEXT - 1) + "…"


def test_an_error_is_logged_without_content_and_not_raised(caplog):
    recent = Recent()
    with caplog.at_level(logging.ERROR):
        finish(recent, score={"secret": "content"})

    assert caplog.messages == ["the status page lost raw/0/1: KeyError"]
    assert caplog.records[0].exc_info is None


def test_rates_are_over_the_last_whole_seconds(seconds):
    recent = Recent()
    finish(recent, "rejected")
    seconds[0] += 2.5
    finish(recent, "contribute")
    finish(recent, "dead_letter")
    seconds[0] += 0.4  # the second that they came in is not over
    assert [dict(second) for second in recent.per_second()[-2:]] == [{"rejected": 1}, {}]

    seconds[0] += 1
    last = [{"rejected": 1}, {}, {"contribute": 1, "dead_letter": 1}]
    assert [dict(second) for second in recent.per_second()[-3:]] == last

    seconds[0] += SECONDS
    assert len(recent.per_second()) == SECONDS
    assert not any(recent.per_second())
