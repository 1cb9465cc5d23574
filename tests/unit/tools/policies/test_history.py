"""Finding a policy by the beginning of its digest."""

import pytest

from worker.errors import InputError
from worker.kafka.policy_topic import KeptPolicy
from worker.policy import Policy
from worker.tools.policies.history import find_policy

HISTORY = [KeptPolicy(Policy(threshold=number / 100), number) for number in range(40)]
ONE = HISTORY[7].policy


def test_a_policy_is_found_by_its_digest_or_the_beginning_of_it():
    assert find_policy(HISTORY, ONE.digest).policy == ONE
    assert find_policy(HISTORY, ONE.digest[:8]).policy == ONE


def test_an_unknown_digest_is_refused_with_those_there_are():
    with pytest.raises(InputError, match="ffffffffffff: no such policy was in force: .*" + ONE.digest):
        find_policy(HISTORY, "ffffffffffff")


def test_an_ambiguous_digest_is_refused_with_those_that_begin_with_it():
    first = next(one.policy.digest[0] for one in HISTORY)
    alike = [one.policy.digest for one in HISTORY if one.policy.digest.startswith(first)]

    with pytest.raises(InputError, match=f"{first}: {len(alike)} policies begin with it: {', '.join(alike)}"):
        find_policy(HISTORY, first)
