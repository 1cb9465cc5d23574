"""The private names of libraries that the worker uses.

An upgrade that removes a name or changes its parameters fails here, not in production.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

import faust
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.producer.message_accumulator import MessageAccumulator, MessageBatch
from aiokafka.producer.sender import Sender
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.api import Request

from knowledgepulse_kafka.record_batches import Batches
from knowledgepulse_kafka.record_batches import ClientPartitionRecords as PartitionRecords

WORKER = Path(__file__).parents[5] / "worker"


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        # group_member.py: the coordinator's answers tell the generation; no hook tells them.
        (GroupCoordinator, "_send_req", ["self", "request"]),
        # group_offsets.py: the client's own request fetches what a transaction may still replace.
        (GroupCoordinator, "_do_fetch_commit_offsets", ["self", "partitions"]),
        # producer.py: the client logs a traceback if the coordinator has forgotten the id.
        (Sender, "_do_add_partitions_to_txn", ["self", "tps"]),
        # producer.py: the client's own request names no member.
        (Sender, "_do_txn_offset_commit", ["self", "offsets", "group_id"]),
        (Sender, "_find_coordinator", ["self", "coordinator_type", "coordinator_key"]),
        # producer.py: the producer's own stop waits for brokers that are away.
        (Sender, "close", ["self"]),
        # sending.py: all requests pass through it; the client has no hook for them.
        (AIOKafkaClient, "_get_conn", ["self", "node_id", "group", "no_hint"]),
        # own_request.py: the client lacks some requests.
        (Request, "prepare", ["self", "versions"]),
        # stream/faust.py: an app stores nothing, and there may be no place for its folders.
        (faust.App, "_create_directories", ["self"]),
    ],
)
def test_a_private_name_exists_with_the_expected_parameters(owner, name, parameters):
    found = getattr(owner, name, None)

    assert found is not None, f"{owner.__name__}.{name} is gone"
    assert list(inspect.signature(found).parameters) == parameters, f"{owner.__name__}.{name} has changed"


def test_a_consumer_has_a_coordinator_with_a_generation():
    """`group_member.py` treats a negative generation as no membership."""
    assert "self._coordinator" in inspect.getsource(AIOKafkaConsumer.start)
    assert "self.generation = OffsetCommitRequest.DEFAULT_GENERATION_ID" in inspect.getsource(
        GroupCoordinator
    )


def test_a_connection_sends_what_a_request_prepares():
    """`own_request.py`: its requests do not extend the client's own."""
    source = inspect.getsource(AIOKafkaConnection.send)

    assert "request_struct = request.prepare(self._versions)" in source
    assert used(AIOKafkaConnection.send, "request") == {"prepare"}


def test_a_producer_has_a_sender_and_the_state_of_its_transaction():
    """`group_offsets.py` and `producer.py` end what waits for the brokers' answers."""
    source = inspect.getsource(AIOKafkaProducer)
    assert "self._sender = Sender(" in source
    assert "self._txn_manager = TransactionManager(" in source
    state = inspect.getsource(TransactionManager)
    assert "self._pending_txn_offsets = deque()" in state
    assert "self._transaction_waiter = " in state
    assert "self._batches = collections.defaultdict(collections.deque)" in inspect.getsource(
        MessageAccumulator
    )
    assert "self._drain_waiter.set_exception(exception)" in inspect.getsource(MessageBatch.failure)


def test_the_fetcher_uses_the_replaced_parser():
    """`record_batches.py`: the client has no hook for undecodable batches."""
    source = inspect.getsource(Fetcher._proc_fetch_request)

    assert "records = MemoryRecords(part_data[-1])" in source
    assert "partition_records = PartitionRecords(" in source
    assert list(inspect.signature(PartitionRecords).parameters)[:2] == ["tp", "records"]
    assert "self.next_fetch_offset = record.offset + 1" in inspect.getsource(PartitionRecords._unpack_records)
    assert used(Fetcher._proc_fetch_request, "records") == {"has_next", "size_in_bytes"}
    assert (
        used(PartitionRecords._unpack_records, "records") == {"has_next", "next_batch"} <= set(dir(Batches))
    )
    assert used(PartitionRecords._unpack_records, "next_batch") == {
        "base_offset",
        "is_control_batch",
        "is_transactional",
        "next_offset",
        "producer_id",
        "validate_crc",
    }
    assert used(PartitionRecords._consumer_record, "record") == {
        "checksum",
        "headers",
        "key",
        "offset",
        "timestamp",
        "timestamp_type",
        "value",
    }


def used(function, name):
    """Return the attributes of a variable that a function uses."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    }
