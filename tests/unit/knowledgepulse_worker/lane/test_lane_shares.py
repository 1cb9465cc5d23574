"""What a share decides in a lane depends on the policy and the log, and on nothing else."""

from __future__ import annotations

import pytest

from knowledgepulse_schemas.trace import ENDINGS
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.ledger_records import (
    COMMITTED_VERSION,
    ENTRY_VERSION,
    decode_entry,
    decode_scores,
)
from support.lanes import score, trace_of

THIRD = Policy(share=0.3, share_window=40)
COUNT = 90


@pytest.fixture
def records(raw):
    """Return records whose traces have many different scores, and some equal ones."""
    return [
        raw(
            offset,
            trace_of(
                offset,
                "Fix the build",
                offset * 37 % 50 / 50,
                f"agent {offset % 3}",
                ending=ENDINGS[offset % 5 % 4],
            ),
        )
        for offset in range(COUNT)
    ]


async def test_a_share_ranks_a_partitions_traces(make_harness, records):
    harness = make_harness(policy=THIRD, embedding=False, in_flight_records=COUNT)
    await harness.processed(await harness.lane(), *records)

    scores, window = [score(output) for output in harness.outputs()], THIRD.profile("code").window
    assert [score["of"] for score in scores] == [
        min(number, window(number)) for number in range(1, COUNT + 1)
    ]
    assert ["rank" in score for score in scores] == [False, *[True] * (COUNT - 1)]


async def test_what_passes_a_share_is_told_by_domain_over_a_workers_partitions(make_harness, records):
    """The other partition's scores are lower, so one number would hide what passes there."""
    harness = make_harness(policy=THIRD, embedding=False, in_flight_records=COUNT)
    lane, metrics = await harness.lane(), harness.services.metrics
    await harness.processed(lane, *records)
    cuts = lane.ledger.state.scores.cuts(harness.services.policy.policy.profiles)
    metrics.policy.share_thresholds([cuts, {"code": 0.25}, {"code": 0.3, "legal": 0.1}])

    assert cuts == {"code": score(harness.outputs()[-1])["threshold"]}
    assert [harness.metric("kp_share_threshold", domain="code", quantile=of) for of in ("0", "0.5", "1")] == [
        0.25, 0.3, cuts["code"],
    ]  # fmt: skip
    metrics.policy.share_thresholds([])
    assert harness.metric("kp_share_threshold", domain="code", quantile="0") is None


async def test_another_embedder_begins_anew_and_the_share_passes_of_its_scores(make_harness, records):
    """Its ledger is cut: novelty, and with it each score, has another level."""
    harness = make_harness(policy=THIRD, in_flight_records=COUNT)
    await harness.processed(await harness.lane(), *records[:30])
    harness.embedder.identity = "another"
    successor = await harness.lane(30, harness.changelog())
    await harness.processed(successor, *records[30:])

    scores = [score(output) for output in harness.outputs()]
    passing = [output.topic == "contribute" for output in harness.outputs()[34:]]
    assert [score["of"] for score in scores[28:32]] == [14, 15, 1, 2]
    assert harness.metric("kp_cache_resets_total", reason="model") == 1
    assert sum(passing) / len(passing) == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize(
    ("rule", "version"), [({"min_score": 0.3}, 4), ({"withhold_endings": ["failed"]}, ENTRY_VERSION)]
)
async def test_a_release_that_does_not_know_a_rule_refuses_only_what_it_withheld(
    make_harness, records, rule, version
):
    """Skipping such an entry as a foreign one would change the novelty of later traces."""
    harness = make_harness(policy=Policy(threshold=0, **rule), in_flight_records=COUNT)
    await harness.processed(await harness.lane(), *records)

    entries = map(decode_entry, harness.changelog().entries.values())
    versions = {(entry.decision, entry.version) for entry in entries}
    assert versions == {("rejected", version), ("contribute", COMMITTED_VERSION)}


@pytest.mark.parametrize(("cap", "version"), [(1.0, 1), (0.5, 2)])
async def test_a_release_that_does_not_know_agent_cap_refuses_only_last_scores_with_agents(
    make_harness, records, cap, version
):
    """It would drop the agents, so that later ranks were others."""
    policy = Policy(share=0.3, share_window=40, agent_cap=cap)
    harness = make_harness(policy=policy, embedding=False, in_flight_records=COUNT)
    await harness.processed(await harness.lane(), *records)

    (stored,) = map(decode_scores, harness.changelog().scores.values())
    assert (stored.version, len(stored.last.agents)) == (version, 40 * (version - 1))


async def test_the_cap_holds_after_a_restart(make_harness, records):
    policy = Policy(share=0.3, share_window=40, agent_cap=0.2)
    whole, parts = (make_harness(policy=policy, embedding=False, in_flight_records=COUNT) for _ in range(2))
    await whole.processed(await whole.lane(), *records)
    await parts.processed(await parts.lane(), *records[:50])
    await parts.processed(await parts.lane(50, parts.changelog()), *records[50:])

    assert [*map(score, whole.outputs())] == [*map(score, parts.outputs())]
