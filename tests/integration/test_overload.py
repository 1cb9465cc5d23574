"""More than a worker can take: what waits in Kafka does not wait in its memory."""

from __future__ import annotations

from itertools import islice

import pytest

from chaos.embedder import Order, Orders
from chaos.overload import KAFKA_MAX_MESSAGE_BYTES, LARGE, MEDIUM, Watch, publish, traces_of
from chaos.process import ORDERS
from knowledgepulse_kafka.topics import MAX_MESSAGE_BYTES
from knowledgepulse_worker.tools.audit import audit

PARTITIONS = 4
FETCH = {MAX_MESSAGE_BYTES: str(KAFKA_MAX_MESSAGE_BYTES)}


async def nothing_is_missing(stream, count):
    report = await audit(stream.settings)
    assert (report.ok, report.waiting) == (True, 0)
    assert sum(partition.outputs for partition in report.partitions) == count


@pytest.mark.integration
async def test_memory_does_not_grow_with_what_was_read(make_stream):
    stream = await make_stream(PARTITIONS, cache={"max_elements": 50})
    await stream.recreate_topic(stream.settings.topics.raw, PARTITIONS, FETCH)
    make, warm, count = traces_of(MEDIUM), 2_700, 8_000
    records = ((number % PARTITIONS, make(number)) for number in range(count))
    await publish(stream, islice(records, warm))
    async with stream.worker() as worker:
        await worker.owns(PARTITIONS)
        watch = Watch(worker)
        await watch.until(lambda sample: sample.finished == warm)  # the page of metrics may be a second old
        await publish(stream, records)
        await watch.until(lambda sample: sample.finished == count)
        assert await worker.stop() == 0
    before, after = watch.growth(warm)
    assert after < before * 1.1, f"{after - before} bytes more for {count - warm} records of {MEDIUM}"
    await nothing_is_missing(stream, count)


@pytest.mark.integration
async def test_what_is_in_flight_is_bounded_however_long_the_embedder_blocks(make_stream, tmp_path):
    large, small = 24, 200
    stream = await make_stream(PARTITIONS, limits={"in_flight_records": 8, "in_flight_bytes": 3 * LARGE})
    await stream.recreate_topic(stream.settings.topics.raw, PARTITIONS, FETCH)
    orders = Orders(tmp_path / "orders.json", Order())
    async with stream.worker(module="chaos.process", environment={ORDERS: str(orders.path)}) as worker:
        await worker.owns(PARTITIONS)
        orders.block(seconds=3600)
        of_large, of_medium = traces_of(LARGE), traces_of(MEDIUM)
        await publish(stream, ((0, of_large(number)) for number in range(large)))
        await publish(stream, ((1 + number % (PARTITIONS - 1), of_medium(number)) for number in range(small)))
        watch = Watch(worker)
        # The lane of the large ones is full by bytes, the others by count.
        full = 2 + (PARTITIONS - 1) * 8
        await watch.until(lambda sample: sample.records >= full)
        await watch.until(lambda _: len(watch.samples) > 10)
        orders.as_usual()
        await watch.until(lambda sample: sample.finished == large + small)
        assert await worker.stop() == 0
    assert (watch.most_records, watch.most_bytes) == (PARTITIONS * 8, PARTITIONS * 3 * LARGE)
    assert max(sample.records for sample in watch.samples) == full
    assert max(sample.bytes for sample in watch.samples) < 3 * LARGE + (PARTITIONS - 1) * 8 * 1.1 * MEDIUM
    await nothing_is_missing(stream, large + small)
