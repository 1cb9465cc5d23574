"""What a lane tells the status page of the records that it finished."""

from worker.errors import TooLargeError
from worker.policy import Policy


async def processed(here, lane, *records):
    for record in records:
        await lane.take(record)
    await here.until(lambda: lane.watermark == records[-1].offset + 1)


async def test_a_rejected_trace_is_told_with_its_parts_and_the_nearest_before_it(world, raw):
    here = world()

    await processed(here, await here.lane(), raw(0), raw(1))

    first, second = here.services.metrics.recent.rejected
    assert (first["source"], first["trace_id"]) == ("raw-traces/0/0", "kp:trace:0/0")
    assert (second["objective"], second["score"]["nearest"]) == ("Fix the failing build", "kp:trace:0/0")
    assert second["score"]["threshold"] == 0.75
    assert [score for _, score in here.services.metrics.recent.scores] == [
        first["score"]["score"],
        second["score"]["score"],
    ]
    assert len(here.services.metrics.recent.scoring_seconds) == 2


async def test_a_trace_that_is_delivered_again_is_told_as_its_entry_says(world, raw):
    here = world()
    await processed(here, await here.lane(), raw(0))
    await processed(here, await here.lane(0, here.changelog()), raw(0))

    first, again = here.services.metrics.recent.rejected
    assert again["score"] == first["score"]
    assert (again["trace_id"], again["objective"]) == ("kp:trace:0/0", None)


async def test_a_dead_letter_is_told_with_its_reason_and_its_parts_where_it_was_scored(world, raw):
    here = world(policy=Policy(threshold=0))
    here.publisher.refused.add("contribute")

    await processed(here, await here.lane(), raw(0, b"no JSON"), raw(1))

    unread, large = here.services.metrics.recent.dead_letters
    assert (unread["reason"], unread["trace_id"], unread["score"]) == ("not_json", None, None)
    assert (large["reason"], large["exception"]) == ("too_large", TooLargeError.__name__)
    assert large["score"]["domain"] == "code"
    assert list(here.services.metrics.recent.scores) == []
