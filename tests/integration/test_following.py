"""A program that watches topics gets their records as they arrive."""

import pytest

from knowledgepulse_kafka.topic_reader import TopicReader
from support.streams import Message

pytestmark = pytest.mark.integration

PARTITIONS = 2


async def test_records_are_followed_as_they_arrive(make_stream):
    """The demo asked for the ends of all partitions again and again, which took as much CPU as its worker."""
    stream = await make_stream(PARTITIONS)
    raw = stream.settings.topics.raw
    await stream.publish(Message(b"%d" % number, partition=number % PARTITIONS) for number in range(5))
    async with TopicReader(stream.settings.kafka.client_config(), 10**6) as reader:
        arrivals = reader.follow({raw: PARTITIONS, stream.settings.topics.contribute: PARTITIONS})
        seen = []
        while len(seen) < 5:
            seen += [record.value for record in await anext(arrivals)]
        await stream.publish([Message(b"the last", partition=1)])
        while len(seen) < 6:
            seen += [record.value for record in await anext(arrivals)]

    assert sorted(seen[:5]) == [b"%d" % number for number in range(5)]
    assert seen[5:] == [b"the last"]
