"""The learned value: a share of the score, the same to the last bit wherever it is computed."""

import dataclasses
import math
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.policy import (
    BUCKETS,
    TERMS,
    DomainPolicy,
    LearnedValue,
    Policy,
    Reading,
    Term,
    Words,
)
from knowledgepulse_worker.scoring import (
    NoFactsError,
    ScoredRecord,
    count_trace,
    explain_score,
    rescore,
    score_trace,
)
from knowledgepulse_worker.scoring.learned import contributions
from knowledgepulse_worker.scoring.words import buckets_of, hashes_of, word_buckets
from support.drawn_policies import POLICIES

UNIT = st.floats(0, 1)
TERM = st.builds(
    Term,
    mean=st.floats(-10, 10),
    deviation=st.floats(1e-3, 10),
    weight=st.floats(-100, 100),
    clip=st.floats(0.1, 100),
)
WORDS = st.builds(
    lambda unit, mean, source: Words(
        unit=unit, mean=mean, weights=b64encode(source.randbytes(BUCKETS)).decode()
    ),
    st.floats(1e-6, 10),
    st.floats(-10, 10),
    st.randoms(use_true_random=False),
)
LEARNED = st.builds(
    LearnedValue,
    share=UNIT,
    facts_version=st.just(1),
    intercept=st.floats(-1000, 1000),
    terms=st.dictionaries(st.sampled_from(TERMS), TERM),
    words=st.none() | WORDS,
)
STEPS = st.lists(
    st.sampled_from(["thought", "tool_call a", "tool_call b", "observation", "error_recovery"]), min_size=1
)


def with_learned(learned, **others):
    return Policy(domains={"default": DomainPolicy(learned=learned, **others)})


def about(trace, objective):
    return trace.model_copy(update={"task": trace.task.model_copy(update={"objective": objective})})


def repeating(share=1.0):
    """A value that falls with repeated calls."""
    term = Term(mean=0.25, deviation=0.25, weight=-1, clip=3)
    return LearnedValue(share=share, facts_version=1, intercept=0.5, terms={"repeated_share": term})


def with_words(unit=0.01, mean=0.0, strongest=None, **weights):
    """A value of these words' weights alone; all are the strongest, unless some are given."""
    table = bytearray(BUCKETS)
    buckets = {word: int(buckets_of(hashes_of([word.encode()], 1), BUCKETS)[0]) for word in weights}
    for word, weight in weights.items():
        table[buckets[word]] = weight % 256
    named = {buckets[word]: word for word in (weights if strongest is None else strongest)}
    words = Words(unit=unit, mean=mean, weights=b64encode(table).decode(), strongest=named)
    return LearnedValue(share=1, facts_version=1, intercept=0.0, terms={}, words=words)


@given(steps=STEPS, learned=LEARNED, others=POLICIES)
def test_a_rescored_trace_equals_one_scored_under_the_learned_value(make_trace, steps, learned, others):
    trace = make_trace(*steps, task_domain="elsewhere")
    policy, counts = with_learned(learned), count_trace(trace, Reading.WORDS)

    score = score_trace(trace, None, policy, counts)

    assert 0 <= score.quality_score <= 1
    assert rescore(score_trace(trace, None, others, counts), trace.metadata, policy, counts) == score
    assert rescore(score, trace.metadata, others, counts) == score_trace(trace, None, others, counts)


@given(steps=STEPS, learned=LEARNED)
def test_without_a_share_the_score_is_the_formula_bit_for_bit(make_trace, steps, learned):
    trace = make_trace(*steps, task_domain="elsewhere")
    policy = with_learned(learned.model_copy(update={"share": 0.0}))

    assert score_trace(trace, None, policy) == score_trace(trace, None, Policy())
    assert policy.digest == Policy().digest


@given(learned=LEARNED)
def test_the_digest_changes_with_anything_that_scores_and_with_nothing_else(learned):
    policy = with_learned(learned)
    others = {
        "share": learned.share / 2 + 0.1,
        "intercept": learned.intercept / 2 + 1,
        "terms": learned.terms | {"asks": Term(mean=77, deviation=1, weight=1, clip=1)},
        "words": Words(unit=11, mean=0, weights=with_words().words.weights),
    }
    for name, value in others.items():
        changed = with_learned(learned.model_copy(update={name: value}))
        if learned.share:
            assert (changed.digest != policy.digest) == (getattr(learned, name) != value)
    strongest = learned.words and learned.words.model_copy(update={"strongest": {7: "stale"}})
    backwards = learned.model_copy(
        update={
            "terms": dict(reversed(learned.terms.items())),
            "facts_version": 1,
            "words": strongest,
        }
    )
    assert with_learned(backwards).digest == policy.digest


def test_the_value_is_the_logistic_function_of_clipped_terms(make_trace):
    trace = make_trace("tool_call a", "tool_call a", "tool_call a", "tool_call a", task_domain="elsewhere")
    policy = with_learned(repeating(share=0.5))

    score = score_trace(trace, None, policy, count_trace(trace))

    assert score.learned == pytest.approx(1 / (1 + math.exp(-(0.5 - 2))))  # three of four repeat
    formula = score_trace(trace, None, Policy()).quality_score + 0.1  # before the override of a single tool
    assert score.quality_score == pytest.approx(0.5 * formula + 0.5 * score.learned - 0.1)


def test_each_distinct_word_counts_once_by_the_root_of_their_number(make_trace):
    trace = about(make_trace("thought", task_domain="elsewhere"), "stale stale LOCK, file x")
    policy = with_learned(with_words(stale=100, lock=-30))
    words = count_trace(trace, Reading.WORDS).words.split()

    score = score_trace(trace, None, policy, count_trace(trace, Reading.WORDS))

    assert {"stale", "lock", "file", "x"} <= {*words}
    assert len(words) == len({*words})
    assert score.learned == pytest.approx(1 / (1 + math.exp(-0.7 / math.sqrt(len(words)))))


def test_words_that_an_embedder_has_hashed_give_the_same_value(make_trace):
    trace = about(make_trace("thought", "tool_call a", task_domain="elsewhere"), "stale lock, stale file")
    policy, read = with_learned(with_words(stale=100, lock=-30, file=7)), count_trace(trace, Reading.WORDS)
    words = read.words.encode().split()
    hashed = buckets_of(hashes_of(words, len(words)), BUCKETS)[::-1].astype("u2").tobytes()

    counts = count_trace(trace, Reading.WORDS, hashed)

    assert counts.words is None
    assert score_trace(trace, None, policy, counts) == score_trace(trace, None, policy, read)


def test_a_text_without_words_has_the_value_of_the_intercept(make_trace):
    trace = about(make_trace("observation", task_domain="elsewhere"), "?!")
    trace.steps[0].content = None

    counts = count_trace(trace, Reading.WORDS)

    assert counts.words == ""
    assert score_trace(trace, None, with_learned(with_words(stale=9)), counts).learned == 0.5
    profile = with_learned(with_words(stale=9)).profile("default")
    (told,) = contributions(profile, score_trace(trace, None, Policy()).dimensions, counts)
    assert told.words == "it has no words"


def test_the_words_that_moved_a_trace_are_named(make_trace):
    """Beside the usual sum of words, as a fact is told beside its usual value."""
    trace = about(make_trace("thought", task_domain="elsewhere"), "the lock is stale")
    policy = with_learned(
        with_words(stale=100, lock=-30, the=127, unit=0.1, mean=0.5, strongest=["stale", "lock"])
    )
    counts = count_trace(trace, Reading.WORDS)
    score = score_trace(trace, None, policy, counts)
    record = ScoredRecord.of("raw/0/1", trace, score, counts=counts)

    (words,) = explain_score(record, policy).learned

    root = math.sqrt(len(counts.words.split()))
    assert words.words == f"its words, such as stale {10 / root:+.2f}, lock {-3 / root:+.2f}"
    assert words.points == pytest.approx(19.7 / root - 0.5)
    assert score.learned == pytest.approx(1 / (1 + math.exp(-words.points)))
    without = dataclasses.replace(record, counts=count_trace(trace))
    assert explain_score(without, policy) is None


def test_words_that_the_stream_has_only_hashed_count_without_a_name(make_trace):
    trace = about(make_trace("thought", task_domain="elsewhere"), "the lock is stale")
    policy, hashed = with_learned(with_words(stale=100)), count_trace(trace, buckets=word_buckets(trace))
    score = score_trace(trace, None, policy, hashed)
    named = explain_score(
        ScoredRecord.of("raw/0/1", trace, score, counts=count_trace(trace, Reading.WORDS)), policy
    )

    explanation = explain_score(ScoredRecord.of("raw/0/1", trace, score, counts=hashed), policy)

    (words,) = explanation.learned
    assert words.words == "its words, which `kp-worker traces show` names"
    assert words.points == named.learned[0].points != 0


def test_other_domains_do_not_inherit_a_learned_value(make_trace):
    trace = make_trace("thought", "observation", task_domain="code")

    assert score_trace(trace, None, with_learned(repeating())) == score_trace(trace, None, Policy())


def test_a_trace_whose_counts_are_unknown_is_refused_rather_than_scored_otherwise(make_trace):
    trace = make_trace("thought", "observation", task_domain="elsewhere")

    with pytest.raises(NoFactsError, match="score them again"):
        score_trace(trace, None, with_learned(repeating()))
    with pytest.raises(NoFactsError, match="needs words that these traces lack"):
        score_trace(trace, None, with_learned(with_words(stale=1)), count_trace(trace))


def test_an_explanation_names_the_largest_contributions(make_trace):
    trace = make_trace(*["tool_call a"] * 4, "tool_call b", task_domain="elsewhere")
    policy = with_learned(repeating(share=0.5), threshold=0.6)
    score = score_trace(trace, None, policy, count_trace(trace))
    record = ScoredRecord.of("raw/0/1", trace, score, counts=count_trace(trace))

    explanation = explain_score(record, policy)

    (largest,) = explanation.learned
    assert (largest.words, largest.points) == (
        "3 of 5 calls repeat an earlier one (usually 25%)", pytest.approx(-1.4),
    )  # fmt: skip
    assert sum(part.points for part in explanation.parts) == pytest.approx(explanation.weighted)
    assert explanation.parts[-1].dimension == "learned"
    (remedy,) = explanation.remedies
    assert remedy.startswith("learned value of ")
    needed = float(remedy.split()[3])
    for value, passes in ((needed, True), (needed - 0.0002, False)):
        profile = policy.profile("elsewhere")
        parts = explanation.weighted + 0.5 * (value - score.learned)
        assert (parts >= profile.threshold) is passes
    assert explain_score(dataclasses.replace(record, counts=None), policy) is None


def test_a_contribution_is_told_beside_the_usual_value(make_trace):
    terms = {
        "steps": Term(mean=math.log1p(20), deviation=1, weight=1, clip=3),
        "novelty": Term(mean=0.3, deviation=1, weight=0.1, clip=3),
        "asks": Term(mean=0.1, deviation=0.3, weight=0.01, clip=3),
        "calls": Term(mean=1e300, deviation=1, weight=2, clip=3),
    }
    trace = make_trace("thought", "observation", task_domain="elsewhere")
    learned = LearnedValue(share=1, facts_version=1, intercept=0, terms=terms)
    score = score_trace(trace, None, with_learned(learned), count_trace(trace))

    profile = with_learned(learned).profile("default")
    told = {
        contribution.name: contribution.words
        for contribution in contributions(profile, score.dimensions, count_trace(trace))
    }

    assert told["steps"] == "it has 2 steps (usually 20)"
    assert told["novelty"] == "its novelty is 0.50 (usually 0.30)"
    assert told["asks"] == "its result does not end with a question"
    assert told["calls"].startswith("it has no calls (usually ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"facts_version": 2}, "later release"),
        (
            {"terms": {"stepz": {"mean": 0, "deviation": 1, "weight": 1, "clip": 3}}},
            "no fact or dimension 'stepz'",
        ),
        ({"terms": {"steps": {"mean": 0, "deviation": 0, "weight": 1, "clip": 3}}}, "greater than 0"),
        ({"terms": {"steps": {"mean": math.nan, "deviation": 1, "weight": 1, "clip": 3}}}, "finite"),
        ({"slope": 1}, "Extra inputs"),
        ({"words": {"unit": 1, "mean": 0, "weights": "AAAA"}}, "base64 of 1,024 bytes"),
        ({"words": {"unit": 1, "mean": 0, "weights": "ß"}}, "base64 of 1,024 bytes"),
        ({"words": {"unit": 0, "mean": 0, "weights": "AAAA" * 341 + "AA=="}}, "greater than 0"),
        (
            {"words": {"unit": 1, "mean": 0, "weights": "AAAA" * 341 + "AA==", "strongest": {"1024": "x"}}},
            "less than 1024",
        ),
    ],
)
def test_a_learned_value_that_this_release_cannot_compute_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        LearnedValue.model_validate({"facts_version": 1, "intercept": 0, "terms": {}} | changes)


def test_unknown_members_of_the_origin_are_kept():
    """They affect no score, and a later release may say more."""
    origin = {"on": "2026-11-26", "labels": {"ann": 40}, "traces": 40, "kept": 20, "groups": 40,
              "auc": [0.7, 0.6, 0.8], "fitted_with": "later"}  # fmt: skip
    learned = LearnedValue.model_validate({"facts_version": 1, "intercept": 0, "terms": {}, "fitted": origin})

    assert learned.model_dump(mode="json")["fitted"]["fitted_with"] == "later"
