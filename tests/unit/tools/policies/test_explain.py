"""Explanations of scores."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.policy import Policy
from worker.scoring import ScoredRecord, quality_score
from worker.tools.policies.explain import explain

UNIT = st.floats(0, 1)


def explanation(record, policy=None):
    return "\n".join(explain(record, policy or Policy()))


def test_explains_every_part_of_the_score(make_record):
    """The weights of `code` are 0.2, 0.3, 0.3 and 0.2."""
    record = make_record((0.5, 0.4, 0.8, 0.9), "code", ("single_tool",), nearest="kp:trace:0")

    text = explanation(replace(record, policy=Policy().digest, timestamp_ms=1000))

    assert "from raw-traces/0/kp:trace:1 at 1970-01-01T00:00:01.000Z" in text
    assert "score 0.5400 is below the threshold 0.75 of code: rejected" in text
    assert f"policy {Policy().digest}:" in text
    assert "  complexity         0.5000 × 0.2   = 0.1000 of at most 0.2\n" in text
    assert "  tool diversity     0.8000 × 0.3   = 0.2400 of at most 0.3\n" in text
    assert (
        "  sum                                 0.6400\n  override single_tool: one tool only: 0.1 less"
        in text
    )
    assert "  score                               0.5400\n" in text
    assert "nearest earlier trace: kp:trace:0, similarity 0.6000\n" in text
    assert text.endswith("it falls short by 0.2100; no single change would suffice")


def test_lists_the_changes_that_would_suffice(make_record):
    text = explanation(make_record((0.5, 0.4, 0.8, 0.9), "code"))

    assert (
        "it falls short by 0.1100; any one of these would suffice:\n  novelty of 0.7667 instead of 0.4000"
        in text
    )
    assert "complexity of" not in text


def test_success_or_one_override_less_can_suffice(make_record):
    failed = make_record((0.9, 0.9, 0.9, 0.24), "medical", success=False)
    single = make_record((0.8, 0.8, 0.8, 0.8), "code", ("single_tool",))

    assert "  success, with the same confidence of 0.8" in explanation(failed)
    assert "  no override single_tool" in explanation(single)


def test_no_other_change_lets_a_single_thought_pass(make_record):
    assert "no override single_thought" in explanation(make_record((1, 1, 1, 1), "code", ("single_thought",)))
    assert "no single change would suffice" in explanation(
        make_record((0, 0, 0, 0), "code", ("single_thought",))
    )


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
            assert (quality_score(changed, overrides, profile.weights) >= profile.threshold) is passes


def test_a_passing_trace_shows_its_margin(make_record):
    assert explanation(make_record((0.8, 0.8, 0.8, 0.8), "code")).endswith("it passes by 0.0500")


def test_a_withheld_trace_shows_which_visibilities_are_contributed(make_record):
    guarded = Policy(contribute_visibility=["org", "network"])
    passing = make_record((0.8, 0.8, 0.8, 0.8), "code", visibility="private", policy=guarded)
    failing = make_record((0.5, 0.4, 0.8, 0.9), "code", visibility="private", policy=guarded)

    text = explanation(passing, guarded)
    assert "reaches the threshold 0.75 of code; visibility private is withheld: rejected" in text
    rule = "whatever the score, the policy contributes only visibility org or network"
    assert text.endswith(f"the score passes by 0.0500\n{rule}")
    text = explanation(failing, guarded)
    assert "is below the threshold 0.75 of code; visibility private is withheld: rejected" in text
    assert "it falls short by 0.1100" in text
    assert text.endswith(rule)
    assert "withheld" not in explanation(make_record(policy=guarded), guarded)


def test_the_guard_of_an_unknown_policy_is_no_reason_to_show_weights(make_record):
    record = make_record(visibility="private", policy=Policy(contribute_visibility=["org"]))

    assert "×" not in explanation(record)


def test_the_first_trace_has_no_nearest_trace(make_record):
    assert "no earlier trace to compare with, so novelty is 0.5" in explanation(make_record())


def test_mentions_that_a_domain_has_no_profile(make_record):
    assert "of default (no profile is named legal): rejected" in explanation(make_record(domain="legal"))


@pytest.mark.parametrize("digest", [None, "0123456789ab"])
def test_omits_the_weights_of_an_unknown_policy(make_record, digest):
    record = make_record(policy=Policy(threshold=0.6))

    text = explanation(replace(record, policy=digest))

    named = "another policy" if digest is None else f"policy {digest}"
    assert f"scored under {named}, not {Policy().digest}; pass that policy with --policy" in text
    assert "×" not in text
    assert "×" in explanation(record, Policy(threshold=0.6))


def test_escapes_terminal_control_characters_from_producers(make_record):
    hostile = "kp:trace:\x1b[2J\n\x9b"
    record = replace(make_record(id=hostile, nearest=hostile), task_domain="\r\x07", policy="\x1b")

    assert all(line.isprintable() for line in explain(record, Policy()))
    assert isinstance(record, ScoredRecord)
