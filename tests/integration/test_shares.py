"""A share on a real broker: through a kill and added partitions, each rank can be recomputed."""

from __future__ import annotations

import pytest

from knowledgepulse_worker.tools.audit import audit
from support.commands import kp_worker
from support.streams import Message, score_of

pytestmark = pytest.mark.integration

FIFTH = {
    "policy": {"share": 0.2, "share_window": 40, "min_score": 0.2, "agent_cap": 0.5},
    "embedding": {"backend": "none"},
}


async def test_a_share_holds_through_a_kill_and_added_partitions(make_stream, real_traces, config):
    """Nothing but the ledger's last scores tells a successor what passes: there are no entries."""
    stream = await make_stream(2, **FIFTH)
    raw = await stream.publish(Message(line, b"key", n % 2) for n, line in enumerate(real_traces * 2))
    await stream.killed(lambda worker: worker.published(80))
    async with stream.worker() as worker:
        await worker.owns(2)  # the killed one may have published everything
        await stream.outputs(worker, raw)
        assert await worker.stop() == 0
    assert (await kp_worker("topics", "--partitions", "4", "--yes", "--config", config(stream.settings)))[
        0
    ] == 0
    raw += await stream.publish(Message(line, b"key", n % 4) for n, line in enumerate(real_traces))
    outputs = await stream.scored(raw)

    report = await audit(stream.settings)
    assert (report.ok, report.differing, report.missing) == (True, 0, 0)
    assert [(partition.shares_unaudited, partition.shares_begun) for partition in report.partitions] == [
        (0, 0)
    ] * 4
    ranked = [score for score in map(score_of, outputs) if "rank" in score]
    passing = [score["rank"] <= score["share"] * score["of"] for score in ranked]
    assert len(ranked) > 250
    assert sum(passing) / len(passing) == pytest.approx(0.2, abs=0.05)
