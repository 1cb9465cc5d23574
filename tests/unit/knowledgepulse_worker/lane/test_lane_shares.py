"""What a share decides in a lane depends on the policy and the log, and on nothing else."""

from __future__ import annotations

import pytest

from knowledgepulse_worker.policy import Policy, Weights
from knowledgepulse_worker.records.ledger_records import decode_scores, scores_key
from support.lanes import score, trace_of

THIRD = Policy(share=0.3, share_window=40)
COUNT = 90


@pytest.fixture
def records(raw):
    """Return records whose traces have many different scores, and some equal ones."""
    return [raw(offset, trace_of(offset, "Fix the build", offset * 37 % 50 / 50)) for offset in range(COUNT)]


@pytest.fixture
async def scores(make_harness, records):
    """Return the scores of an undisturbed worker."""
    harness = make_harness(policy=THIRD, embedding=False, in_flight_records=COUNT)
    await harness.processed(await harness.lane(), *records)
    return [score(output) for output in harness.outputs()]


def written(harness):
    """Return the source offset and the number of last scores of each changelog record with them."""
    records = [one for one in harness.publisher.records(harness.ledger) if one.key == scores_key("code")]
    found = [decode_scores(record.value) for record in records if record.value is not None]
    return [(one.offset, len(one.last.scores)) for one in found]


async def test_a_share_ranks_a_partitions_traces(scores):
    window = THIRD.profile("code").window
    assert [one["of"] for one in scores] == [min(number, window(number)) for number in range(1, COUNT + 1)]
    assert ["rank" in one for one in scores] == [False, *[True] * (COUNT - 1)]


async def test_without_a_share_no_scores_are_kept(make_harness, records):
    harness = make_harness(policy=Policy(threshold=0.4), embedding=False, in_flight_records=COUNT)
    await harness.processed(await harness.lane(), *records[:5])

    assert written(harness) == []


async def test_a_group_that_was_set_back_begins_anew(make_harness, records):
    harness = make_harness(policy=THIRD, embedding=False, in_flight_records=COUNT)
    await harness.processed(await harness.lane(), *records[:50])
    rewound = await harness.lane(10, harness.changelog())
    await harness.processed(rewound, *records[10:20])

    assert [score(one)["of"] for one in harness.outputs()[50:]] == [1, 2, 3, 4, 4, 4, 4, 4, 4, 5]
    assert written(harness)[-1] == (19, 5)
    assert harness.metric("kp_cache_resets_total", reason="rewind") == 1


async def test_other_weights_begin_anew_and_another_share_does_not(make_harness, records):
    harness = make_harness(policy=THIRD, embedding=False, in_flight_records=COUNT)
    lane = await harness.lane()
    await harness.processed(lane, *records[:40])
    harness.services.policy.policy = THIRD.model_copy(update={"share": 0.1})
    await harness.processed(lane, *records[40:50])
    other = {"code": {"weights": dict(zip(Weights.model_fields, (1, 0, 0, 0), strict=True))}}
    harness.services.policy.policy = Policy(share=0.3, domains=other)
    await harness.processed(lane, *records[50:60])

    assert [score(one)["of"] for one in harness.outputs()[38:62]] == [
        *(19, 20),  # under a share of 0.3
        *(20, 21, 21, 22, 22, 23, 23, 24, 24, 25),  # of 0.1
        *(1, 2, 3, 4, 4, 4, 4, 4, 4, 5),  # under other weights
    ]


async def test_a_record_that_cannot_be_scored_takes_no_place(make_harness, records, raw):
    harness = make_harness(policy=THIRD, embedding=False, in_flight_records=COUNT)
    await harness.processed(await harness.lane(), records[0], raw(1, b"no trace"), *records[2:4])

    assert written(harness) == [(3, 3)]


async def test_another_embedder_begins_anew_and_the_share_passes_of_its_scores(make_harness, records):
    """Its ledger is cut: novelty, and with it each score, has another level."""
    harness = make_harness(policy=THIRD, in_flight_records=COUNT)
    await harness.processed(await harness.lane(), *records[:30])
    harness.embedder.identity = "another"
    successor = await harness.lane(30, harness.changelog())
    await harness.processed(successor, *records[30:])

    scores = [score(output) for output in harness.outputs()]
    passing = [output.topic == "contribute" for output in harness.outputs()[34:]]
    assert [one["of"] for one in scores[28:32]] == [14, 15, 1, 2]
    assert harness.metric("kp_cache_resets_total", reason="model") == 1
    assert sum(passing) / len(passing) == pytest.approx(0.3, abs=0.1)
