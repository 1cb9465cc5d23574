import pytest


@pytest.fixture(params=["simulated", pytest.param("kafka", marks=pytest.mark.integration)])
def implementation(request):
    """Where a test runs: on the brokers of knowledgepulse_kafka.testing, or on real ones."""
    return request.param


@pytest.fixture
def make_stream_if_real(request, implementation):
    """Make streams at a real broker; None for the simulated ones."""
    return request.getfixturevalue("make_stream") if implementation == "kafka" else None
