"""Questions to leaders about where epochs end."""

from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition

from knowledgepulse_kafka import leader_epochs
from knowledgepulse_kafka.leader_epochs import epoch_ends

NOT_LEADER = 6


class Brokers:
    """A client whose brokers lead partitions, and answer with an error code and an end for each."""

    def __init__(self, leaders, answers):
        self.cluster = SimpleNamespace(leader_for_partition=lambda at: self.leaders[at.partition])
        self.leaders = leaders
        self.answers = answers
        self.asked = []
        self.elected = {}

    async def send(self, leader, request):
        topics = request.to_object()["topics"]
        self.asked.append(
            (leader, [partition["partition"] for topic in topics for partition in topic["partitions"]])
        )
        return SimpleNamespace(
            topics=[
                (
                    topic["topic"],
                    [
                        self._answer(leader, partition["partition"], partition["leader_epoch"])
                        for partition in topic["partitions"]
                    ],
                )
                for topic in topics
            ]
        )

    def _answer(self, leader, partition, epoch):
        if (self.leaders | self.elected)[partition] != leader:
            return NOT_LEADER, partition, -1, -1
        return 0, partition, epoch, self.answers[partition]

    async def force_metadata_update(self):
        self.leaders = self.leaders | self.elected


def at(*numbers):
    return dict.fromkeys([TopicPartition("raw", number) for number in numbers], 4)


async def test_each_leader_is_asked_once_for_all_of_its_partitions():
    brokers = Brokers({0: 1, 1: 2, 2: 1}, {0: 10, 1: 11, 2: -1})

    ends = await epoch_ends(brokers, at(0, 1, 2))

    assert ends == {TopicPartition("raw", 0): 10, TopicPartition("raw", 1): 11}
    assert brokers.asked == [(1, [0, 2]), (2, [1])]


@pytest.mark.parametrize(("known", "asked"), [(-1, []), (2, [(2, [1])])])
async def test_a_partition_is_asked_for_until_its_leader_answers(monkeypatch, known, asked):
    monkeypatch.setattr(leader_epochs, "_RETRY_PAUSE", 0)
    brokers = Brokers({0: 1, 1: known}, {0: 10, 1: 11})
    brokers.elected = {1: 3}

    ends = await epoch_ends(brokers, at(0, 1))

    assert ends == {TopicPartition("raw", 0): 10, TopicPartition("raw", 1): 11}
    assert brokers.asked == [(1, [0]), *asked, (3, [1])]
