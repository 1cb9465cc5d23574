"""What the package changes of aiokafka, it changes for its own clients only."""

import importlib
import pkgutil
from types import SimpleNamespace

import aiokafka
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition, errors
from aiokafka.client import AIOKafkaClient

import knowledgepulse_kafka
from knowledgepulse_kafka.client_factory import new_client, new_producer
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.refused_record import InvalidRecord
from knowledgepulse_kafka.throttle import Throttle

INVALID_RECORD = InvalidRecord.errno


def modules_of(package):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
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
