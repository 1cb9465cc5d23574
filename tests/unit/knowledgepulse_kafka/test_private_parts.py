"""aiokafka has every part that the package names, which changes them for its own clients only."""

import ast
import importlib
import importlib.util
import pkgutil
from pathlib import Path
from types import SimpleNamespace

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import Fetcher, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.producer.message_accumulator import MessageAccumulator, MessageBatch
from aiokafka.producer.sender import Sender, SendProduceReqHandler, TxnOffsetCommitHandler
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

import knowledgepulse_kafka
from knowledgepulse_kafka import private_parts
from knowledgepulse_kafka.client_factory import new_client, new_producer
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.refused_record import InvalidRecord
from knowledgepulse_kafka.throttle import Throttle

INVALID_RECORD = InvalidRecord.errno
PARTS = [
    *(part for part in vars(private_parts).values() if isinstance(part, private_parts.Part)),
    *private_parts.CONNECTION_OPTIONS.values(),
]


@pytest.fixture
async def owners():
    """An object of each class that has private parts, by the name of the class; none connects."""
    client, producer, consumer = AIOKafkaClient(), AIOKafkaProducer(), AIOKafkaConsumer()
    transaction = TransactionManager("an-id", 60_000)
    sender = Sender(
        client,
        acks=-1,
        txn_manager=transaction,
        message_accumulator=None,
        retry_backoff_ms=100,
        request_timeout_ms=1_000,
    )
    fetcher = Fetcher(client, SubscriptionState())
    coordinator = GroupCoordinator(client, SubscriptionState())
    place = TopicPartition("topic", 0)
    objects = (
        *(client, producer, consumer, AIOKafkaAdminClient(), transaction, sender, fetcher, coordinator),
        *(ClusterMetadata(), AIOKafkaConnection("a-host", 1)),
        PartitionRecords(place, None, [], 0, None, None, True, "read_committed"),
        FetchRequest(1, 1, 1, 0, []),
        MetadataRequest([]),
        *(SendProduceReqHandler(sender, {}), TxnOffsetCommitHandler(sender, {}, "a-group")),
        *(MessageAccumulator(None, 1, 0, 1), MessageBatch(place, None, 1, 0)),
    )
    yield {type(thing).__name__: thing for thing in objects}
    for started in (fetcher, coordinator):
        await started.close()
    await producer.stop()
    await consumer.stop()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.owner}.{part.name}")
def test_aiokafka_has(part, owners):
    method = getattr(owners[part.owner], part.name)

    assert {*part.looks_up} <= {*getattr(getattr(method, "__code__", None), "co_names", ())}


def test_no_other_module_names_a_private_part():
    """Linters see those of other objects, but not those that a subclass inherits."""
    names = {part.name for part in PARTS}
    named = []
    for path in Path(knowledgepulse_kafka.__path__[0]).glob("*.py"):
        text = path.read_text()
        assert "noqa: SLF001" not in text, path.name
        classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
        for extension in classes:
            if "aiokafka is untyped" in text.splitlines()[extension.lineno - 1]:
                attributes = {node.attr for node in ast.walk(extension) if isinstance(node, ast.Attribute)}
                named += [(path.name, extension.name, name) for name in sorted(attributes & names)]

    assert named == []


def modules_of(package):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        spec = importlib.util.find_spec(module.name)
        if spec.origin.endswith(".py"):  # not a compiled library, which is no module
            yield importlib.import_module(module.name)


def test_no_name_in_a_module_of_aiokafka_is_one_of_the_package_s():
    """A client that another part of the program made connected, and failed, in other ways than aiokafka's."""
    assert list(modules_of(knowledgepulse_kafka))
    replaced = [
        (module.__name__, name)
        for module in modules_of(aiokafka)
        for name, value in vars(module).items()
        if str(getattr(value, "__module__", "")).startswith("knowledgepulse")
    ]

    assert replaced == []
    assert errors.for_code(INVALID_RECORD) is errors.UnknownError


async def test_a_client_of_its_own_connects_in_its_own_way_and_another_one_in_aiokafka_s(monkeypatch):
    connected = []

    async def connect(host, port, **_):
        connected.append((host, port))
        raise OSError

    monkeypatch.setattr("aiokafka.client.create_conn", connect)
    own, other = new_client(Config()), AIOKafkaClient()
    for port, client in ((1, own), (2, other)):
        client.cluster.update_metadata(
            SimpleNamespace(API_VERSION=1, brokers=[(1, "127.0.0.1", port, None)], controller_id=1, topics=[])
        )
        assert await client._get_conn(1) is None
        await client.close()

    assert connected == [("127.0.0.1", 2)]


class Batch:
    """Keeps the error by which it ended."""

    def __init__(self):
        self.error = None
        self.offset = None

    def get_data_buffer(self):
        return b""

    def failure(self, exception):
        self.error = exception

    def done(self, offset, *_):
        self.offset = offset


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: new_producer(Config(), Throttle()), InvalidRecord),
        (lambda: AIOKafkaProducer(enable_idempotence=True), errors.UnknownError),
    ],
)
async def test_a_refused_record_is_told_by_its_error_and_the_other_batches_of_the_request_go_on(
    make, kind, monkeypatch
):
    producer = make()
    places = [TopicPartition("topic", number) for number in (0, 1)]
    batches = {place: Batch() for place in places}

    async def answer(*_):
        return SimpleNamespace(
            API_VERSION=7, topics=[("topic", [(0, INVALID_RECORD, -1, -1, 0), (1, 0, 41, -1, 0)])]
        )

    monkeypatch.setattr(producer.client, "send", answer)
    producer._sender._in_flight.add(1)
    producer._sender._muted_partitions.update(places)
    await producer._sender._send_produce_req(1, batches)
    await producer.stop()

    assert type(batches[places[0]].error) is kind
    assert (batches[places[1]].error, batches[places[1]].offset) == (None, 41)
    assert not producer._sender._muted_partitions
