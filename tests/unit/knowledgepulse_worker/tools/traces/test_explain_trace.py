"""Explanations of scores."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.policy import LearnedValue, Policy, Term
from knowledgepulse_worker.scoring import NoFactsError, quality_score
from knowledgepulse_worker.tools.traces.explain_trace import explain

UNIT = st.floats(0, 1)
GUARDED = Policy(contribute_visibility=["org", "network"])
RULE = "\nwhatever the score, the policy contributes only visibility org or network"


def explanation(record, policy=None):
    return "\n".join(explain(record, policy or Policy()))


def test_explains_every_part_of_the_score(make_record):
    """The weights of `code` are 0.2, 0.3, 0.3 and 0.2."""
    record = make_record((0.5, 0.4, 0.8, 0.9), "code", ("single_tool",), nearest="kp:trace:0")

    text = explanation(replace(record, policy=Policy().digest, timestamp_ms=1000))

    for part in (
        "from raw-traces/0/kp:trace:1 at 1970-01-01T00:00:01.000Z",
        "score 0.5400 is below the threshold 0.75 of code: rejected",
        f"policy {Policy().digest}:",
        "  complexity         0.5000 × 0.2   = 0.1000 of at most 0.2\n",
        "  tool diversity     0.8000 × 0.3   = 0.2400 of at most 0.3\n",
        "  sum                                 0.6400\n  override single_tool: one tool only: 0.1 less",
        "  score                               0.5400\n",
        "nearest earlier trace: kp:trace:0, similarity 0.6000\n",
    ):
        assert part in text
    assert text.endswith("it falls short by 0.2100; no single change would suffice")


def test_nobody_is_told_to_be_surer_where_the_run_told_no_confidence(make_record):
    record = make_record((0.6, 0.8, 0.8, 0.5), "code")

    surer = "outcome confidence of 0."
    assert surer in explanation(record)
    assert surer not in explanation(replace(record, assumed_confidence=True))


LOW, HIGH = (0.5, 0.4, 0.8, 0.9), (0.8,) * 4
CASES = {
    "a dimension": (
        (LOW, "code"),
        "it falls short by 0.1100; this would suffice:\n  novelty of 0.7667 instead of 0.4000",
    ),
    "success": (((0.9, 0.9, 0.9, 0.24), "medical"), "  success, with the same confidence of 0.8"),
    "one override less": ((HIGH, "code", ("single_tool",)), "  no override single_tool"),
    "a single thought": (((1, 1, 1, 1), "code", ("single_thought",)), "no override single_thought"),
    "a poor single thought": (((0, 0, 0, 0), "code", ("single_thought",)), "no single change would suffice"),
    "a margin": ((HIGH, "code"), "it passes by 0.0500"),
    "no nearest trace": ((), "no earlier trace to compare with, so novelty is 0.5"),
    "no profile": ((HIGH, "legal"), "of default (no profile is named legal): contribute"),
}


@pytest.mark.parametrize(("arguments", "told"), CASES.values(), ids=CASES)
def test_says_what_would_suffice_and_what_is_missing(make_record, arguments, told):
    assert told in explanation(make_record(*arguments, success="medical" not in arguments))


@given(
    dimensions=st.tuples(UNIT, UNIT, UNIT, UNIT),
    overrides=st.sampled_from([(), ("single_tool",), ("recovered",), ("single_thought",)]),
)
def test_a_listed_value_is_the_smallest_that_passes(make_record, dimensions, overrides):
    record = make_record(dimensions, "code", overrides)
    score, profile = record.score, Policy().profile("code")

    for line in explain(record, Policy()):
        if " instead of " not in line:
            continue
        name, _, needed = line.strip().partition(" instead")[0].rpartition(" of ")
        field = name.replace(" ", "_")
        for value, passes in ((float(needed), True), (float(needed) - 1.01e-4, False)):
            changed = replace(score.dimensions, **{field: value})
            assert (quality_score(changed, overrides, profile) >= profile.threshold) is passes


@pytest.mark.parametrize(
    ("dimensions", "reached", "end"),
    [
        (HIGH, "reaches the threshold 0.75 of code", f"the score passes by 0.0500{RULE}"),
        (LOW, "is below the threshold 0.75 of code", RULE),
    ],
)
def test_a_withheld_trace_shows_which_visibilities_are_contributed(make_record, dimensions, reached, end):
    text = explanation(make_record(dimensions, "code", visibility="private", policy=GUARDED), GUARDED)

    assert f"{reached}; visibility private is withheld: rejected" in text
    assert text.endswith(end)
    assert ("it falls short by 0.1100" in text) is (dimensions == LOW)
    assert "withheld" not in explanation(make_record(policy=GUARDED), GUARDED)


def test_the_guard_of_an_unknown_policy_is_no_reason_to_show_weights(make_record):
    record = make_record(visibility="private", policy=Policy(contribute_visibility=["org"]))

    assert "×" not in explanation(record)


@pytest.mark.parametrize("digest", [None, "0123456789ab"])
def test_omits_the_weights_of_an_unknown_policy(make_record, digest):
    record = make_record(policy=Policy(threshold=0.6))

    text = explanation(replace(record, policy=digest))

    named = "another policy" if digest is None else f"policy {digest}"
    assert f"scored under {named}, not {Policy().digest}; pass that policy with --policy" in text
    assert "×" not in text
    assert "×" in explanation(record, Policy(threshold=0.6))


def test_the_score_that_another_policy_would_give_is_explained_beside_the_recorded_one(make_record):
    term = Term(mean=0, deviation=1, weight=-1, clip=3)
    learned = LearnedValue(share=1, facts_version=1, intercept=1, terms={"repeated_share": term})
    policy = Policy(domains={"code": {"learned": learned, "threshold": 0.5}})
    record = make_record(LOW, "code", policy=Policy(threshold=0.6))

    text = "\n".join(explain(record, policy, otherwise=True))

    assert "score 0.6400 reaches the threshold 0.6 of code: contribute" in text
    assert (
        f"under policy {policy.digest}, which did not score it:\nscore 0.7311 reaches the threshold 0.5"
        in text
    )
    assert "  learned value      0.7311 × 1" in text
    assert "calls repeat an earlier one" in text
    assert text.endswith("it passes by 0.2311")


def test_a_policy_with_a_learned_value_cannot_explain_a_trace_whose_counts_are_unknown(make_record):
    learned = LearnedValue(
        share=1, facts_version=1, intercept=0, terms={"steps": Term(mean=0, deviation=1, weight=1, clip=3)}
    )
    policy = Policy(domains={"code": {"learned": learned}})

    with pytest.raises(NoFactsError):
        list(explain(make_record(LOW, "code", counts=None), policy, otherwise=True))


def test_escapes_terminal_control_characters_from_producers(make_record):
    hostile = "kp:trace:\x1b[2J\n\x9b"
    record = replace(make_record(id=hostile, nearest=hostile), task_domain="\r\x07", policy="\x1b")

    assert all(line.isprintable() for line in explain(record, Policy()))
