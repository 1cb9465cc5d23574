"""A prior that ships becomes a learned value by the means and deviations of a stream's own traces."""

import tomllib

import numpy as np
import pytest

from knowledgepulse_curator.fitting.prior import MIN_TRACES, prior_toml, priors
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import FACT_NAMES, FACTS_VERSION, Policy
from knowledgepulse_worker.scoring import FACTS


@pytest.fixture
def records(make_record, make_counts):
    """Return records of the domain code, with one to nine calls."""
    rng = np.random.default_rng(0)
    return [
        make_record(tuple(rng.random(4)), "code", id=f"kp:trace:{number}", counts=make_counts(1 + number % 9))
        for number in range(MIN_TRACES)
    ]


def proposed(records, policy=None, share=1.0):
    text = prior_toml(priors()["code-prior-1"], records, policy or Policy(), target=0.1, share=share)
    return text, Policy.model_validate(tomllib.loads(text)["policy"])


def test_a_prior_that_ships_can_be_computed_by_this_release():
    for name, prior in priors().items():
        assert name == prior.name
        assert prior.facts_version <= FACTS_VERSION
        assert {*prior.weights} <= {*FACT_NAMES}


def test_weights_apply_to_deviations_from_the_mean_of_the_streams_own_traces(records):
    text, policy = proposed(records)

    learned = policy.domains["code"].learned
    calls = [FACTS["calls"].of(record.counts) for record in records]
    assert learned.terms["calls"].mean == pytest.approx(np.mean(calls), rel=1e-3)
    assert learned.terms["calls"].deviation == pytest.approx(np.std(calls), rel=1e-3)
    assert learned.terms["calls"].weight == priors()["code-prior-1"].weights["calls"]
    assert "one_tool_share" not in learned.terms  # all calls use the same tool
    assert policy.profile("code").share == 0.1
    assert text.startswith("# code: the weights of code-prior-1, which were fitted to public runs")


def test_the_policy_does_not_depend_on_traces_of_other_domains_or_later_ones(records, make_record):
    other = make_record((0.1, 0.1, 0.1, 0.1), "legal", id="kp:trace:other")

    assert proposed([*records, other]) == proposed(records)


def test_too_few_traces_are_refused(records):
    with pytest.raises(InputError, match="needs 50 traces of the domain code, and there are 49"):
        proposed(records[1:])
