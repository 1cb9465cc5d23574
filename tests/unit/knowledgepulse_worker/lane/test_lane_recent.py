"""Finished records as a lane reports them to the status page."""

from knowledgepulse_worker.errors import TooLargeError
from knowledgepulse_worker.policy import Policy


async def test_a_redelivered_trace_is_reported_from_its_entry(make_harness, raw):
    harness = make_harness()
    await harness.processed(await harness.lane(), raw(0))
    await harness.processed(await harness.lane(0, harness.changelog()), raw(0))

    first, again = harness.services.metrics.recent.traces["rejected"]
    assert (again.record, again.explanation) == (first.record, first.explanation)
    assert (again.record.id, again.objective) == ("kp:trace:0/0", None)


async def test_a_dead_letter_is_reported_with_its_reason_and_any_score(make_harness, raw):
    harness = make_harness(policy=Policy(threshold=0))
    harness.publisher.refused.add("contribute")

    await harness.processed(await harness.lane(), raw(0, b"no JSON"), raw(1))

    unread, large = harness.services.metrics.recent.dead_letters
    assert (unread["reason"], unread["trace_id"], unread["score"]) == ("not_json", None, None)
    assert (large["reason"], large["exception"]) == ("too_large", TooLargeError.__name__)
    assert large["score"].domain == "code"
    assert list(harness.services.metrics.recent.scores) == []
