"""A share lets the best of the last traces pass, whatever the level of their scores."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from knowledgepulse_worker.policy import MAX_DOMAINS, DomainPolicy, Policy, Weights, places
from knowledgepulse_worker.scoring import UNKNOWN_AGENT, LastScores, RecentScores, Score, scores_that_count
from knowledgepulse_worker.scoring.shares import _turn

TENTH = Policy(share=0.1, share_window=100)
UNIT = st.floats(0, 1)


def scored(value, domain="default", policy=TENTH, withheld=None):
    """Return a score before a share has decided on it."""
    threshold = policy.profile(domain).threshold
    return Score(value, 0.5, 0.5, 0.5, 0.5, (), domain, threshold, None, withheld=withheld)


def decided(values, policy=TENTH, domain="default", recent=None):
    """Return the decided scores of one partition."""
    recent = RecentScores() if recent is None else recent
    profile = policy.profile(domain)
    return [recent.decide(scored(value, domain, policy), profile) for value in values]


def passing(scores):
    return sum(score.passes for score in scores) / len(scores)


def shuffled(count):
    """Return different numbers from 0 to 1 in random order."""
    numbers = [number / count for number in range(count)]
    Random(7).shuffle(numbers)
    return numbers


@pytest.mark.parametrize("level", [0.01, 0.3, 1])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.5, 1])
def test_the_share_passes_at_every_level_of_scores(share, level):
    policy = Policy(share=share, share_window=100)
    scores = decided([level * value for value in shuffled(2000)], policy)

    assert passing(scores[200:]) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.5])
def test_of_equal_scores_the_share_passes_at_any_time(share):
    """Neither all nor none, and not all at once."""
    scores = decided([0.5] * 2000, Policy(share=share, share_window=100))
    blocks = [passing(scores[start : start + 100]) for start in range(100, 2000, 100)]

    assert all(block == pytest.approx(share, abs=0.03) for block in blocks)


def test_the_threshold_decides_until_one_trace_would_pass():
    policy = Policy(share=0.1, share_window=100, domains={"code": DomainPolicy(share=0.01)})
    few = decided([0.7, 0.8, 0.7, 0.8, 0.9], policy)
    rare = decided(shuffled(120), policy, "code")

    assert {(score.threshold, score.rank) for score in few[:4]} == {(0.75, None)}
    assert [score.passes for score in few] == [False, True, False, True, True]
    assert (few[4].rank, few[4].of) == (1, 5)
    assert [score.rank is None for score in rare] == [True] * 49 + [False] * 71


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_the_share_passes_once_twice_the_high_first_scores_have_come(share):
    """Scores fall while a novelty cache fills: the first ones must not fill the window."""
    low = [number * 0.618 % 1 / 2 for number in range(150)]
    scores = decided([0.9] * 50 + low, Policy(share=share))

    assert passing(scores[100:150]) == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("withheld", ["visibility", "score"])
def test_a_withheld_trace_takes_no_place(withheld):
    with_others, alone = RecentScores(), RecentScores()
    profile = TENTH.profile("default")
    for value in shuffled(300):
        other = with_others.decide(scored(1.0, withheld=withheld), profile)
        ranked = with_others.decide(scored(value), profile)

        assert (other.decision, other.rank, other.of) == ("rejected", None, None)
        assert ranked == alone.decide(scored(value), profile)


def test_scores_under_other_weights_are_not_ranked_together():
    recent = RecentScores()
    decided(shuffled(100), recent=recent)
    changed = Policy(share=0.1, domains={"default": DomainPolicy(weights=weights(1, 0, 0, 0))})
    (score,) = decided([0.5], changed, recent=recent)

    assert (score.of, score.rank, score.threshold) == (1, None, 0.75)


def weights(*values):
    return Weights(**dict(zip(Weights.model_fields, values, strict=True)))


OTHER = {"default": DomainPolicy(share=0.2, weights=weights(1, 0, 0, 0))}
CHANGES = st.sampled_from(
    [
        TENTH,
        Policy(share=0.3, share_window=30),
        Policy(share=0.1, share_window=60, domains=OTHER),
        Policy(share=0.2, share_window=40, agent_cap=0.4),
        Policy(threshold=0.4),
    ]
)
STREAM = st.lists(
    st.tuples(
        CHANGES,
        st.sampled_from(["default", "code"]),
        st.sampled_from([0.0, 0.25, 0.5]) | UNIT,
        st.sampled_from(["a", "b", None]),
    ),
    max_size=150,
)


@given(STREAM, st.data())
def test_a_restart_from_what_is_kept_decides_as_an_undisturbed_worker(stream, data):
    """Whatever the policies, and wherever a commit ends."""
    cut = data.draw(st.integers(0, len(stream)))
    undisturbed, former, kept = RecentScores(), RecentScores(), {}
    for number, (policy, domain, value, agent) in enumerate(stream):
        profile = policy.profile(domain)
        if number == cut:
            former = RecentScores(kept)
        score = former.decide(scored(value, domain, policy), profile, agent)
        keep(kept, former.added)

        assert score == undisturbed.decide(scored(value, domain, policy), profile, agent)
        assert (former.added is None) == (score.of is None)
    assert kept == undisturbed.last_scores() == former.last_scores()
    assert [*kept] == [*undisturbed.last_scores()]


def keep(kept, added):
    """Keep the last scores after one was added, as a ledger does."""
    if added is not None:
        kept.pop(added.forgotten, None)
        kept.pop(added.domain, None)
        kept[added.domain] = added.last_scores()


@given(STREAM)
def test_an_added_score_refers_to_the_last_ones_whatever_is_added_later(stream):
    recent, added, expected = RecentScores(), [], []
    for policy, domain, value, agent in stream:
        recent.decide(scored(value, domain, policy), policy.profile(domain), agent)
        if recent.added is not None:
            added.append(recent.added)
            expected.append(recent.last_scores()[domain])

    assert [addition.last_scores() for addition in added] == expected


def test_what_was_added_stays_the_same_though_thousands_follow():
    recent, profile, added = RecentScores(), TENTH.profile("code"), []
    for number in range(3000):
        recent.decide(scored(number / 3000, "code"), profile)
        added.append(recent.added)

    for number in (0, 150, 999, 1100, 2999):
        kept = profile.window(number + 1)
        expected = [value / 3000 for value in range(max(0, number + 1 - kept), number + 1)]
        assert added[number].last_scores() == LastScores(profile.scale, number + 1, expected)


def test_the_domains_are_bounded_though_policies_name_others():
    """A forgotten domain is forgotten by the worker and by what it keeps alike."""
    recent, kept = RecentScores(), {}
    for number in range(MAX_DOMAINS + 10):
        name = f"domain {number}"
        profile = Policy(share=0.1, domains={name: DomainPolicy()}).profile(name)
        recent.decide(scored(0.5, name), profile)
        keep(kept, recent.added)

    assert len(kept) == MAX_DOMAINS
    assert kept == recent.last_scores()
    assert "domain 9" not in kept


@given(st.lists(UNIT, max_size=80), st.integers(30, 60), UNIT)
def test_a_rank_is_that_of_a_sorted_list(values, window, value):
    """The order that is kept up agrees with one that is made anew."""
    policy = Policy(share=0.1, share_window=window)
    *_, score = decided([*values, value], policy)
    last = [*values, value][-policy.profile("default").window(len(values) + 1) :]
    better, equal = sum(earlier > value for earlier in last), last.count(value)

    assert score.of == len(last)
    if score.rank is None:
        assert places(0.1, len(last)) == 0
    else:
        assert better < score.rank <= better + equal


def test_a_rank_without_a_number_is_no_rank():
    """Such a header was not written by a worker."""
    score = replace(scored(0.8), share=0.1, rank=1)

    assert score.passes == (score.quality_score >= score.threshold)


# --- a cap for agents


CAPPED = Policy(share=0.2, share_window=50, agent_cap=0.3)
AGENTS = st.sampled_from(["a", "b", "c", "d", None])


def decided_of_agents(pairs, policy=CAPPED):
    """Return the decided scores of one partition, of pairs of agent and value."""
    recent, profile = RecentScores(), policy.profile("default")
    return [recent.decide(scored(value, policy=policy), profile, agent) for agent, value in pairs]


@given(st.lists(st.tuples(AGENTS, st.sampled_from([0.25, 0.5]) | UNIT), min_size=1, max_size=80))
def test_only_so_many_better_scores_of_another_agent_count_in_a_rank_and_all_of_its_own(pairs):
    (agent, value), score = pairs[-1], decided_of_agents(pairs)[-1]
    last = pairs[-CAPPED.profile("default").window(len(pairs)) :]
    passing, ranks = places(0.2, len(last)), []
    for at_least in (False, True):  # equal scores are ranked in either order
        above = [other for other, earlier in last[:-1] if earlier > value or (at_least and earlier == value)]
        limit = max(1, places(0.3, passing))
        ranks.append(
            1 + sum(above.count(a) if a == agent else min(limit, above.count(a)) for a in set(above))
        )

    assert (score.rank is None) == (passing == 0)
    if score.rank is not None:
        assert ranks[0] <= score.rank <= ranks[1]
        assert score.threshold <= value if score.passes else value <= score.threshold


def test_a_rank_and_its_threshold_are_those_of_a_list_of_the_scores_that_count():
    """They are found by bisection; the list takes a hundred times as long among 1,000 scores."""

    @given(
        st.lists(st.tuples(AGENTS, st.sampled_from([0.25, 0.5]) | UNIT), min_size=1, max_size=120),
        st.sampled_from([0.1, 0.3, 0.7]),
        st.integers(0, 3),
    )
    def check(pairs, cap, unknown):
        policy = CAPPED.model_copy(update={"agent_cap": cap})
        profile = policy.profile("default")
        before = [value for _, value in pairs[:unknown]]
        last = LastScores(profile.scale, len(before), before) if before else None
        recent = RecentScores({"default": last} if last else {})
        for agent, value in pairs[unknown:]:
            score = recent.decide(scored(value, policy=policy), profile, agent)
        if not pairs[unknown:] or score.rank is None:
            return
        kept = recent.last_scores()["default"]
        turns = (_turn(kept.count - len(kept.scores) + 1 + number) for number in range(len(kept.scores)))
        agents = kept.agents or [UNKNOWN_AGENT] * len(kept.scores)
        ranked = [*zip(kept.scores, turns, agents, strict=True)]
        passing = places(0.2, len(ranked))
        limit = profile.counted_of_agent(passing)
        best = [*scores_that_count(sorted(ranked, reverse=True), ranked[-1][2], limit)]
        assert score.rank == best.index(ranked[-1]) + 1
        assert score.threshold == (best[passing - 1][0] if passing <= len(best) else 0.0)

    check()


@given(st.lists(UNIT, max_size=120), st.sampled_from(["a", None]))
def test_a_cap_changes_nothing_in_a_partition_of_one_agent(values, agent):
    uncapped = decided(values, CAPPED.model_copy(update={"agent_cap": 1.0}))

    assert decided_of_agents([(agent, value) for value in values]) == uncapped


def test_an_agent_that_always_has_the_best_scores_leaves_places_to_others():
    pairs = [
        ("great", 0.9 + value / 10) if n % 2 else ("other", 0.8 * value)
        for n, value in enumerate(shuffled(900))
    ]
    others = {cap: decided_of_agents(pairs, Policy(share=0.1, agent_cap=cap))[100::2] for cap in (1, 0.5)}

    assert passing(others[1]) == 0
    assert 0.05 < passing(others[0.5]) < 0.15


def test_scores_from_before_a_cap_all_count():
    recent, free = RecentScores(), Policy(share=0.2, share_window=50)
    for _ in range(100):
        recent.decide(scored(0.9, policy=free), free.profile("default"), "great")
    score = recent.decide(scored(0.5, policy=CAPPED), CAPPED.profile("default"), "other")

    assert (score.rank, score.of, score.threshold) == (50, 50, 0.9)
