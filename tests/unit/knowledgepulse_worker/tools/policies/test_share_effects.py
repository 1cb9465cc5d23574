"""Tuning shows what shares would have let pass in the order of a stream, and what is withheld."""

from __future__ import annotations

from io import StringIO
from random import Random

import pytest
from rich.console import Console

from knowledgepulse_worker.policy import DomainPolicy, Policy
from knowledgepulse_worker.tools.policies.policy_output import changes
from knowledgepulse_worker.tools.policies.share_effects import HOUR_MS, repeats
from knowledgepulse_worker.tools.policies.tune import tune, with_changes
from knowledgepulse_worker.tools.policies.tune_report import tuning_tables

HOURLY = 50


@pytest.fixture
def records(make_record):
    """Return 400 traces of one partition, 50 an hour, with random dimensions."""
    random = Random(3)
    return [
        make_record(
            tuple(random.random() for _ in range(4)),
            id=str(number),
            timestamp_ms=number // HOURLY * HOUR_MS,
        )
        for number in range(400)
    ]


def test_what_a_share_would_have_let_pass_is_shown_by_hour(records):
    (domain,) = tune(records, Policy(), 0.1).domains.values()
    tenth = next(share for share in domain.shares if share.share == 0.1)

    assert tenth.traces == 400 - 4  # of the first ones, the threshold decides
    assert tenth.passing / tenth.traces == pytest.approx(0.1, abs=0.03)
    assert 0 <= tenth.lowest < 0.1 < tenth.highest < 0.3


def test_a_domain_with_a_share_is_tuned_by_it(records):
    policy = Policy(share=0.2)
    tuning = tune(records, policy, 0.1)
    (domain,) = tuning.domains.values()

    assert domain.share == 0.2
    assert domain.current.share.value == pytest.approx(0.2, abs=0.04)
    assert tuning.proposed.profile("default").share == 0.1
    assert tuning.proposed.profile("code").share == 0.2
    words = [str(part) for part in tuning_tables(tuning)]
    assert not any(word.startswith("note: ") for word in words)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_figure_of_a_tuning_is_cut_by_a_terminal(width, make_record):
    """Eight columns of a table with intervals were not read at 80."""
    domains = ["code", "customer_service", "finance", "medical_research", "legal"]
    policy = Policy(domains={domain: DomainPolicy(threshold=0.75) for domain in domains})
    records = [
        make_record((number / 40,) * 4, domain, policy=policy) for domain in domains for number in range(40)
    ]
    console = Console(width=width, file=StringIO())
    for part in tuning_tables(tune(records, policy, 0.1)):
        if not isinstance(part, str):
            console.print(part)
    said = console.file.getvalue()

    assert max(map(len, said.splitlines())) <= width
    assert "…" not in said
    assert all(domain in said for domain in domains)
    assert "highest\n" in said
    assert "below 0.2\n" in said


def test_lowest_novelties_show_what_they_would_withhold_and_whether_it_is_worth_keeping():
    found = {
        repeat.min_novelty: (repeat.traces, repeat.kept)
        for repeat in repeats([0.0, 0.03, 0.5], [True, False, True])
    }

    assert (found[0.01], found[0.05], found[0.2]) == ((1, 1), (2, 1), (2, 1))
    assert repeats([0.0])[0].kept is None


def test_a_share_that_replaces_a_threshold_leaves_other_domains_alone():
    policy = Policy(threshold=0.4, domains={"code": DomainPolicy(threshold=0.5)})
    changed = with_changes(policy, {"code": {"share": 0.1}, "default": {"share": 0.3}})

    assert (changed.profile("code").share, changed.profile("default").share) == (0.1, 0.3)
    assert (changed.profile("medical").share, changed.profile("medical").threshold) == (None, 0.4)
    assert with_changes(changed, {"code": {"threshold": 0.5}}).profile("code").share is None


def test_changes_name_shares_windows_and_where_last_scores_begin_anew():
    weights = {"complexity": 1, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 0}
    old = Policy(threshold=0.4, domains={"code": DomainPolicy(share=0.1)})
    new = Policy.model_validate(
        {"threshold": 0.4, "share_window": 200, "min_novelty": 0.05,
         "domains": {"code": {"share": 0.2, "weights": weights}, "medical": {"share": 0.3}}}
    )  # fmt: skip
    lines = {line.partition(": ")[0]: line.partition(": ")[2] for line in changes(old, new)}

    assert lines["medical"] == "threshold 0.4 → share 0.3, min_novelty 0.0 → 0.05"
    assert lines["code"].startswith(
        "share 0.1 → 0.2, share_window 50 → 200, min_novelty 0.0 → 0.05, weight of "
    )
    assert lines["code"].endswith("its last scores begin anew")
