"""The parts of aiokafka that have no public name, which this package needs for want of hooks.

Only this module names them. Each is changed on one object, never in aiokafka's modules, so that other clients
of the program stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any


@dataclass(frozen=True)
class Part:
    """An attribute or a method of an object of aiokafka.

    Args:
        owner: the name of the object's class.
        name: its own name.
        looks_up: the names of its module that are changed for one object.
    """

    owner: str
    name: str
    looks_up: tuple[str, ...] = ()

    def of(self, owner: Any) -> Any:
        """Return the object's part."""
        return getattr(owner, self.name)

    def replace(self, owner: Any, part: Any) -> None:
        """Give an object another part of this name."""
        setattr(owner, self.name, part)

    def replace_globals(self, owner: Any, **names: Any) -> None:
        """Have an object's method look up these names of its module as given here."""
        method = self.of(owner)
        function = method.__func__
        own = FunctionType(
            function.__code__, function.__globals__ | names, function.__name__, function.__defaults__
        )
        own.__kwdefaults__ = function.__kwdefaults__
        self.replace(owner, MethodType(own, method.__self__))


BOOTSTRAP_SERVERS = Part("AIOKafkaClient", "_bootstrap_servers")
CONNECT = Part("AIOKafkaClient", "_get_conn", looks_up=("create_conn",))
"""Returns the connection to a node; all requests pass through it."""
UPDATE_METADATA = Part("AIOKafkaClient", "_metadata_update")
SYNCHRONIZER = Part("AIOKafkaClient", "_sync_task")
SYNCHRONIZE = Part("AIOKafkaClient", "_md_synchronizer")
KNOWN_TOPICS = Part("AIOKafkaClient", "_topics")
CONNECTION_OPTIONS = {
    name: Part("AIOKafkaClient", f"_{name}")
    for name in (
        *("client_id", "request_timeout_ms", "ssl_context", "security_protocol"),
        *("sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider"),
    )
}
"""A client's settings of its connections, by the name of the argument."""

BOOTSTRAP_BROKERS = Part("ClusterMetadata", "_bootstrap_brokers")
BROKERS = Part("ClusterMetadata", "_brokers")
KNOWN_PARTITIONS = Part("ClusterMetadata", "_partitions")
PARTITIONS_FOR_TOPIC = Part("ClusterMetadata", "partitions_for_topic")

LOOP = Part("AIOKafkaConnection", "_loop")
UNANSWERED = Part("AIOKafkaConnection", "_requests")
TOKEN_PROVIDER = Part("AIOKafkaConnection", "_sasl_oauth_token_provider")

ADMIN_CLIENT = Part("AIOKafkaAdminClient", "_client")
CONSUMER_CLIENT = Part("AIOKafkaConsumer", "_client")
COORDINATOR = Part("AIOKafkaConsumer", "_coordinator")
FETCHER = Part("AIOKafkaConsumer", "_fetcher")
SUBSCRIPTION = Part("AIOKafkaConsumer", "_subscription")

SEND_TO_COORDINATOR = Part("GroupCoordinator", "_send_req")
FETCH_OFFSETS = Part("GroupCoordinator", "_do_fetch_commit_offsets")
COORDINATOR_BACKOFF_MS = Part("GroupCoordinator", "_retry_backoff_ms")

FETCH = Part("Fetcher", "_proc_fetch_request", looks_up=("MemoryRecords", "PartitionRecords"))
FETCHES_BY_NODE = Part("Fetcher", "_get_actions_per_node")
FETCHER_BACKOFF = Part("Fetcher", "_retry_backoff")
FETCHING = Part("Fetcher", "_fetch_task")
FETCHES_UNDER_WAY = Part("Fetcher", "_pending_tasks")

RECORDS_ITERATOR = Part("PartitionRecords", "_records_iterator")

MAX_WAIT_MS = Part("FetchRequest", "_max_wait_ms")
FETCH_SETTINGS = (
    MAX_WAIT_MS,
    *(Part("FetchRequest", name) for name in ("_min_bytes", "_max_bytes", "_isolation_level")),
)
REQUESTED_TOPICS = Part("MetadataRequest", "_topics")

SENDER = Part("AIOKafkaProducer", "_sender")
TRANSACTION = Part("AIOKafkaProducer", "_txn_manager")
ACCUMULATOR = Part("AIOKafkaProducer", "_message_accumulator")

SEND_BATCHES = Part("Sender", "_send_produce_req", looks_up=("SendProduceReqHandler",))
ADD_PARTITIONS = Part("Sender", "_do_add_partitions_to_txn")
COMMIT_OFFSETS = Part("Sender", "_do_txn_offset_commit")
FIND_COORDINATOR = Part("Sender", "_find_coordinator")
SENDER_TRANSACTION = Part("Sender", "_txn_manager")

SENT_BATCHES = Part("SendProduceReqHandler", "_batches")
OFFSETS_SENDER = Part("TxnOffsetCommitHandler", "_sender")
OFFSETS_TO_COMMIT = Part("TxnOffsetCommitHandler", "_offsets")
OFFSETS_GROUP = Part("TxnOffsetCommitHandler", "_group_id")

TRANSACTION_END = Part("TransactionManager", "_transaction_waiter")
PENDING_OFFSETS = Part("TransactionManager", "_pending_txn_offsets")
UNSENT_BATCHES = Part("MessageAccumulator", "_batches")
DRAINED = Part("MessageBatch", "_drain_waiter")
