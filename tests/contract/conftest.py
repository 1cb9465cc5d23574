import asyncio

import pytest

from knowledgepulse_kafka.testing.virtual_time import VirtualLoop
from knowledgepulse_kafka.topic_reader import TopicReader
from support.stages import PARTITIONS, Kafka, Simulated

LOOP = pytest.StashKey()
"""What makes the loop of the test that is set up."""


@pytest.fixture(params=["simulated", pytest.param("kafka", marks=pytest.mark.integration)])
def implementation(request):
    """Where a test runs: on the brokers of knowledgepulse_kafka.testing, or on real ones."""
    return request.param


@pytest.fixture
def make_stream_if_real(request, implementation):
    """Make streams at a real broker; None for the simulated ones."""
    return request.getfixturevalue("make_stream") if implementation == "kafka" else None


@pytest.fixture
async def stage(make_stream_if_real):
    """Two empty topics and a group."""
    if make_stream_if_real is None:
        yield Simulated()
    else:
        stream = await make_stream_if_real(PARTITIONS)
        async with TopicReader(stream.settings.kafka.client_config(), 10**6) as reader:
            yield Kafka(stream, reader)


def pytest_asyncio_loop_factories(config, item):
    """Leave the choice to the test's setup, as this hook knows no parameters."""

    def chosen():
        return config.stash[LOOP]()

    return {"of the implementation": chosen}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Choose the loop: on simulated brokers, waits take no time."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    simulated = parameters.get("implementation") == "simulated"
    item.config.stash[LOOP] = VirtualLoop if simulated else asyncio.new_event_loop
