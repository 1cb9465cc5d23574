"""What the measures say of vectors whose worth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from novelty import measures
from novelty.measures import Runs

TASKS, EACH = 12, 4


def runs_of(tasks=TASKS, each=EACH, agents=2):
    numbers = np.repeat(np.arange(tasks), each)
    return Runs.of(list(numbers), [number % agents for number in range(len(numbers))], [""] * len(numbers))


def perfect(runs):
    return (runs.tasks[:, None] == runs.tasks).astype(float)


@pytest.mark.parametrize("across", [False, True])
def test_vectors_that_tell_tasks_apart_are_always_right(across):
    runs = runs_of()

    for measure in (measures.auc, measures.nearest):
        found = measure(perfect(runs), runs, across=across)
        assert (found.value, found.low, found.high) == (1, 1, 1)


def test_vectors_that_tell_nothing_are_right_half_of_the_time():
    runs = runs_of()

    assert measures.auc(np.zeros((len(runs.tasks),) * 2), runs, across=False).value == 0.5


def test_pairs_of_two_domains_do_not_count():
    """Where tasks of one domain look alike, it is no merit to tell them from another domain's."""
    tasks, domains = [0, 0, 1, 1, 2, 2], ["a", "a", "a", "a", "b", "b"]
    runs = Runs.of(tasks, [""] * 6, domains)
    same_domain = (runs.domains[:, None] == runs.domains).astype(float)

    assert measures.auc(same_domain, runs, across=False).value == 0.5


def test_tasks_of_two_domains_with_one_number_are_two():
    assert len(set(Runs.of([1, 1], ["", ""], ["a", "b"]).tasks)) == 2


def test_without_pairs_of_two_agents_there_is_nothing_to_say():
    runs = runs_of(agents=1)

    assert np.isnan(measures.auc(perfect(runs), runs, across=True).value)
    assert np.isnan(measures.nearest(perfect(runs), runs, across=True).value)


def test_a_perfect_choice_covers_every_task_and_says_what_random_covers():
    runs = runs_of()
    found, quartiles = measures.coverage(perfect(runs), runs)

    quarter = found[0.25]
    assert (quarter.tasks, quarter.most) == (TASKS, TASKS)
    assert quarter.ratio.value == pytest.approx(TASKS / quarter.random)
    assert quartiles[:2] == [0, 0]


@given(st.integers(1, 6), st.integers(1, 5), st.sampled_from(measures.SHARES))
def test_random_coverage_is_what_random_choice_covers(tasks, each, share):
    runs = runs_of(tasks, each)
    count = len(runs.tasks)
    number = max(1, round(share * count))
    source = np.random.default_rng(1)
    drawn = [len(set(source.choice(runs.tasks, number, replace=False))) for _ in range(400)]

    found, _ = measures.coverage(perfect(runs), runs)

    assert found[share].random == pytest.approx(np.mean(drawn), abs=0.35)


def test_novelty_is_one_minus_the_largest_earlier_cosine():
    similarities = np.array([[1, 0.2, 0.9], [0.2, 1, 0.4], [0.9, 0.4, 1]])

    assert measures.novelties(similarities, np.array([1, 2, 0])).tolist() == pytest.approx([0.1, 0.5, 0.6])


def test_the_interval_is_over_tasks_and_holds_the_value():
    """Ten tasks with a hundred runs each are ten observations."""
    parts = np.array([100.0] * 5 + [0.0] * 5)
    found = measures.figure(parts, np.full(10, 100.0))

    assert found.value == 0.5
    assert 0.1 <= found.low < 0.35
    assert 0.65 < found.high <= 0.9
