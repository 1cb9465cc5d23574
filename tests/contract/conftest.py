import pytest

from knowledgepulse_kafka.testing.virtual_time import VirtualLoop
from knowledgepulse_kafka.topic_reader import TopicReader
from support.stages import PARTITIONS, Kafka, Simulated


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


@pytest.fixture
def _asyncio_loop_factory(request):
    """On simulated brokers, waits take no time; the hook of pytest-asyncio for loops knows no parameters."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    return VirtualLoop if parameters.get("implementation") == "simulated" else None
