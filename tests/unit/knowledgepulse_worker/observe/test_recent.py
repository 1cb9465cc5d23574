"""Recent events are bounded and displayable."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.observe import recent as module
from knowledgepulse_worker.observe.recent import (
    LAST_RECORDS,
    LAST_SCORES,
    MAX_TEXT,
    RATE_SECONDS,
    PublishedTrace,
    Recent,
)
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.ledger_records import Failure
from knowledgepulse_worker.scoring import Score, explain_score
from support.scored import scored_record

FAILURE = Failure("not_json", "InvalidRecordError", "no JSON")
SCORE = Score(0.4, 0.1, 0.5, 0, 1, (), "default", 0.75, None)


def decide(recent, decision="rejected", *, text="kp:trace:1", domain="code", policy=None):
    """Record a published trace."""
    policy = policy or Policy(threshold=0.4 if decision == "contribute" else 0.75)
    record = scored_record(text, domain, policy)
    recent.published([PublishedTrace(record.score, record.score.decision, text, text, domain)])
    recent.detailed(record, policy, text)
    return record


def bury(recent, *, text="Do it", score=None):
    """Record a dead letter."""
    failure = msgspec.structs.replace(FAILURE, message=text)
    recent.dead_lettered("raw/0/1", score=score, failure=failure, trace_id=text, objective=text)


@pytest.fixture
def seconds(monkeypatch):
    """Return a settable clock."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_memory_is_bounded():
    recent = Recent()
    for number in range(3 * LAST_SCORES):
        recent.finished({"rejected": 1}, [0.1])
        recent.scored(0.01)
        text = f"{number} " + "x" * 5000
        decide(recent, "contribute" if number % 2 else "rejected", text=text, domain=text)
        bury(recent, text=text)

    assert len(recent.origins) == LAST_SCORES
    assert max(len(origin.agent_id) for origin in recent.origins) == MAX_TEXT
    assert len(recent.scores) == len(recent.scoring_seconds) == len(recent.end_to_end_seconds) == LAST_SCORES
    assert len(recent.dead_letters) == LAST_RECORDS
    for traces in recent.traces.values():
        assert len(traces) == LAST_RECORDS
        for trace in traces:
            record = trace.record
            texts = (record.id, record.score.nearest, record.task_domain, trace.task_domain, trace.objective)
            assert max(map(len, texts)) == MAX_TEXT


def test_keeps_only_scores_of_published_traces():
    """A scored trace that was then rejected as too large is a dead letter."""
    recent = Recent()
    decide(recent, "contribute")
    decide(recent, "rejected")
    bury(recent, score=SCORE)

    assert list(recent.scores) == [("code", 0.625, True), ("code", 0.625, False)]
    assert [len(traces) for traces in recent.traces.values()] == [1, 1]
    assert recent.dead_letters[0].score.complexity == 0.1
    assert recent.dead_letters[0].reason == "not_json"


def test_a_trace_is_explained_under_its_own_policy():
    recent, own = Recent(), Policy(threshold=0.9)
    for domain in ("code", "no profile  is named so"):
        record = decide(recent, domain=domain, policy=own)

        trace = recent.traces["rejected"][-1]
        assert trace.explanation == explain_score(record, own)
        assert trace.explanation.verdict.startswith("it falls short by ")
        assert trace.task_domain == domain.replace("  ", " ")


def test_a_domain_that_only_looks_like_a_profile_is_explained_by_the_default():
    """Excerpts have other spaces: "code " has no profile, although its excerpt, "code", has one."""
    recent = Recent()
    decide(recent, domain="code ", policy=Policy())

    (trace,) = recent.traces["rejected"]
    assert [part.weight for part in trace.explanation.parts] == [0.25, 0.35, 0.15, 0.25]


@given(st.text(st.characters(), max_size=3 * MAX_TEXT))
def test_every_excerpt_is_one_short_line_of_valid_unicode(text):
    recent = Recent()
    decide(recent, text=text)
    bury(recent, text=text, score=msgspec.structs.replace(SCORE, nearest=text))

    trace, letter = recent.traces["rejected"][0], recent.dead_letters[0]
    for excerpt in (
        trace.record.id,
        trace.record.score.nearest,
        trace.objective,
        letter.trace_id,
        letter.objective,
        letter.message,
        letter.score.nearest,
    ):
        assert len(excerpt) <= MAX_TEXT
        assert excerpt.splitlines() in ([excerpt], [])
        excerpt.encode()


def test_rates_are_over_the_last_whole_seconds(seconds):
    recent = Recent()
    recent.finished({"rejected": 1}, [])
    seconds[0] += 2.5
    recent.finished({"contribute": 1, "dead_letter": 1}, [])
    seconds[0] += 0.4  # the second that they came in is not over
    assert [dict(second) for second in recent.per_second()[-2:]] == [{"rejected": 1}, {}]

    seconds[0] += 1
    last = [{"rejected": 1}, {}, {"contribute": 1, "dead_letter": 1}]
    assert [dict(second) for second in recent.per_second()[-3:]] == last

    seconds[0] += RATE_SECONDS
    assert len(recent.per_second()) == RATE_SECONDS
    assert not any(recent.per_second())
