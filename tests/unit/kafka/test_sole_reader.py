"""What is read as the only member of a group."""

from types import SimpleNamespace

from knowledgepulse_worker.kafka.sole_reader import SoleReader
from knowledgepulse_worker.settings import KafkaSettings


async def test_a_batch_is_out_of_date_after_a_rebalance(monkeypatch):
    """Its rest is read again from what is committed; whoever went on with it would do everything twice."""
    reader = SoleReader(KafkaSettings(), "a-group", ["contribute"], 10**6)

    async def nothing(**_options):
        return {}

    coordinator = reader._consumer._coordinator = SimpleNamespace(generation=3, close=nothing)
    monkeypatch.setattr(reader._consumer, "getmany", nothing)
    try:
        await reader.batch()
        assert reader.is_current
        coordinator.generation = 4
        assert not reader.is_current
        await reader.batch()
        assert reader.is_current
    finally:
        await reader._consumer.stop()
