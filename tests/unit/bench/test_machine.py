"""The header names the broker's location."""

import pytest

from bench import machine
from worker.tools.demo.brokers import Broker


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
def test_names_the_brokers_location(broker, place):
    assert place in machine.describe(broker)["broker"]
