"""The header says where the broker ran."""

import pytest

from bench import machine
from worker.demo.brokers import Broker


@pytest.mark.parametrize(
    ("broker", "place"),
    [
        (None, "none needed"),
        (Broker("10.0.0.7:9092", "configured", "the broker on 10.0.0.7:9092"), "elsewhere"),
        (
            Broker("127.0.0.1:9092", "configured", "the broker on 127.0.0.1:9092"),
            "on this machine, not pinned",
        ),
        (Broker("10.0.0.7:9092", "docker", "Apache Kafka in Docker"), "on this machine, not pinned"),
    ],
)
def test_the_place_of_the_broker_is_told(broker, place):
    assert place in machine.describe(broker)["broker"]
