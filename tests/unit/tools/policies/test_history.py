"""Finding a policy by the beginning of its digest."""

import pytest

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.kafka.policy_topic import KeptPolicy
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.topics import find_policy

HISTORY = [KeptPolicy(Policy(threshold=number / 100), number) for number in range(40)]
ONE = HISTORY[7].policy
FIRST = next(one.policy.digest[0] for one in HISTORY)
ALIKE = [one.policy.digest for one in HISTORY if one.policy.digest.startswith(FIRST)]


def test_a_policy_is_found_by_its_digest_or_the_beginning_of_it():
    assert find_policy(HISTORY, ONE.digest).policy == ONE
    assert find_policy(HISTORY, ONE.digest[:8]).policy == ONE


@pytest.mark.parametrize(
    ("digest", "message"),
    [
        ("ffffffffffff", "ffffffffffff: no such policy was in force: .*" + ONE.digest),
        (FIRST, f"{FIRST}: {len(ALIKE)} policies begin with it: {', '.join(ALIKE)}"),
    ],
)
def test_another_digest_is_refused_with_those_that_could_be_meant(digest, message):
    with pytest.raises(InputError, match=message):
        find_policy(HISTORY, digest)
