"""Finished records as a lane reports them to the status page."""

from knowledgepulse_kafka.errors import TooLargeError
from knowledgepulse_worker.policy import Policy


async def test_a_dead_letter_is_reported_with_its_reason_and_any_score(make_harness, raw):
    harness = make_harness(policy=Policy(threshold=0))
    harness.publisher.refused.add("contribute")

    await harness.processed(await harness.lane(), raw(0, b"no JSON"), raw(1))

    unread, large = harness.services.metrics.recent.dead_letters
    assert (unread["reason"], unread["trace_id"], unread["score"]) == ("not_json", None, None)
    assert (large["reason"], large["exception"]) == ("too_large", TooLargeError.__name__)
    assert large["score"].domain == "code"
    assert list(harness.services.metrics.recent.scores) == []
