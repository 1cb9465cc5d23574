import pytest


@pytest.fixture(params=["memory", "simulated", pytest.param("kafka", marks=pytest.mark.integration)])
def implementation(request):
    """Where a test runs: in memory, on the brokers of tests/simulation, or on real ones."""
    return request.param


@pytest.fixture
def make_stream_if_real(request, implementation):
    """Make streams at a real broker; None for the other implementations."""
    return request.getfixturevalue("make_stream") if implementation == "kafka" else None
