import pytest


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def make_stream_if_real(request):
    """Make streams at a real broker; None for the implementation in memory."""
    return request.getfixturevalue("make_stream") if request.param == "kafka" else None
