"""What brokers announce is compared with what a worker asks."""

from types import SimpleNamespace

import pytest

from knowledgepulse_kafka.broker_requests import require_requests
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import BrokerError

KAFKA_2_5 = {
    0: 8,
    1: 11,
    2: 5,
    3: 9,
    8: 8,
    9: 7,
    10: 3,
    11: 7,
    12: 4,
    13: 4,
    14: 5,
    15: 5,
    16: 3,
    17: 1,
    18: 3,
    19: 5,
    20: 4,
    21: 1,
    22: 3,
    23: 3,
    24: 1,
    25: 1,
    26: 1,
    28: 3,
    29: 2,
    30: 2,
    31: 2,
    32: 2,
    33: 1,
    34: 1,
    35: 1,
    36: 2,
    37: 2,
    38: 2,
    39: 2,
    40: 2,
    41: 2,
    42: 2,
    43: 2,
    44: 1,
    45: 0,
    46: 0,
    47: 0,
}
"""The newest version of each request, as `ApiKeys` of kafka-clients 2.5.1 has them."""

CONFIG = Config(bootstrap_servers="broker-1:9092", prefix="kafka.")


class Announcing:
    """A client of a broker that announces versions from 0 on."""

    def __init__(self, newest):
        self._newest = newest

    def get_random_node(self):
        return 1

    async def send(self, node, request):
        assert request.API_KEY == 18
        return SimpleNamespace(api_versions=[(key, 0, version) for key, version in self._newest.items()])


async def test_kafka_2_5_knows_what_a_worker_asks():
    await require_requests(Announcing(KAFKA_2_5), CONFIG)


@pytest.mark.parametrize(
    ("gone", "names"),
    [
        ({25, 26, 28}, "AddOffsetsToTxn, EndTxn, TxnOffsetCommit"),
        ({22}, "InitProducerId"),
    ],
)
async def test_brokers_without_transactions_are_told_apart(gone, names):
    announced = {key: version for key, version in KAFKA_2_5.items() if key not in gone}

    with pytest.raises(BrokerError) as caught:
        await require_requests(Announcing(announced), CONFIG)

    assert str(caught.value) == (
        f"kafka.bootstrap_servers: broker-1:9092: the brokers do not know {names}, so they have no "
        "transactions, as Kafka 2.5 and later have"
    )


async def test_an_older_version_than_a_worker_asks_for_is_told():
    """Kafka 2.4 commits a group's positions for any client, not only for its member (KIP-447)."""
    with pytest.raises(BrokerError, match="do not know TxnOffsetCommit version 3, so they have no transac"):
        await require_requests(Announcing(KAFKA_2_5 | {28: 2, 9: 6}), CONFIG)


async def test_another_request_that_is_missing_is_told():
    announced = {key: version for key, version in KAFKA_2_5.items() if key != 32}

    with pytest.raises(
        BrokerError, match=r"the brokers do not know DescribeConfigs, as Kafka 2\.5 and later"
    ):
        await require_requests(Announcing(announced), CONFIG)
