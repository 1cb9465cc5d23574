"""What brokers answer (KIP-35), compared with what a worker asks.

Not everything that speaks Kafka knows transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import UnknownError
from aiokafka.protocol.admin import ApiVersionRequest

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import BrokerError

NAMES = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    42: "DeleteGroups",
}
"""The names of requests by their API key (https://kafka.apache.org/protocol#protocol_api_keys)."""

_TRANSACTIONS = {22: 0, 24: 0, 25: 0, 26: 0, 28: 3}
_OTHERS = {0: 3, 1: 4, 2: 1, 3: 1, 9: 7, 10: 1, 11: 0, 12: 0, 13: 0, 14: 0, 32: 0}
"""The least version of each request that a worker needs: in transactions (KIP-98, KIP-447), and besides."""


def name_of(api_key: int) -> str:
    """Return a request's name."""
    return NAMES.get(api_key, f"request {api_key}")


async def require_requests(client: AIOKafkaClient, config: Config) -> None:
    """Check that a broker announces all requests that a worker sends.

    Raises:
        BrokerError: it does not; names the requests.
        KafkaError: it does not answer.
    """
    response = await client.send(client.get_random_node(), ApiVersionRequest())
    newest = {key: newest for key, _, newest in response.api_versions}
    where = f"{_servers(config)}: the brokers do not know"
    if missing := ", ".join(_missing(newest, _TRANSACTIONS)):
        raise BrokerError(f"{where} {missing}, so they have no transactions, as Kafka 2.5 and later have")
    if missing := ", ".join(_missing(newest, _OTHERS)):
        raise BrokerError(f"{where} {missing}, as Kafka 2.5 and later do")


def refused_producer(config: Config, error: UnknownError) -> BrokerError:
    """Return the error of brokers that announce transactions, and give a producer no id without a reason."""
    return BrokerError(f"{_servers(config)}: the brokers refuse transactions: InitProducerId: {error}")


def _servers(config: Config) -> str:
    return f"{config.prefix}bootstrap_servers: {config.bootstrap_servers}"


def _missing(newest: Mapping[int, int], needed: Mapping[int, int]) -> Iterator[str]:
    for key, version in needed.items():
        if key not in newest:
            yield name_of(key)
        elif newest[key] < version:
            yield f"{name_of(key)} version {version}"
