"""The example of knowledgepulse_kafka's README works as it stands."""

import asyncio
from contextlib import suppress

import pytest
from aiokafka.admin import NewTopic

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.topic_reader import TopicReader
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from support.documents import blocks
from support.streams import admin_of

pytestmark = pytest.mark.integration


async def test_the_example_makes_one_invoice_of_each_order_with_a_value(broker):
    """An order without one ended each session after the other."""
    servers = broker.bootstrap_servers
    source, _ = (
        block.text for block in blocks("worker/knowledgepulse_kafka/README.md") if block.tag == "python"
    )
    example = {"__name__": "example"}
    exec(compile(source, "README.md", "exec"), example)
    async with admin_of(servers) as admin:
        await admin.create_topics([NewTopic("orders", 1, 1), NewTopic("invoices", 1, 1)])

    for orders, expected in (
        ([b"tea", None, b"milk"], [b"TEA", b"MILK"]),
        ([b"sugar"], [b"TEA", b"MILK", b"SUGAR"]),
    ):
        await _publish(servers, orders)
        billing = asyncio.create_task(example["main"](servers, "billing-1"))
        async with TopicReader(Config(bootstrap_servers=servers), 10**6) as reader, asyncio.timeout(60):
            while len(invoices := await _values(reader)) < len(expected):
                await asyncio.sleep(0.1)
        billing.cancel()
        with suppress(asyncio.CancelledError):
            await billing
        assert invoices == expected


async def _publish(servers, orders):
    records = [OutputRecord("orders", 0, NO_TIMESTAMP, b"k", order, ()) for order in orders]
    config = Config(bootstrap_servers=servers)
    async with TransactionalPublisher(config, "shop") as publisher, publisher.transaction() as write:
        await write(records)


async def _values(reader):
    offsets = await reader.bounds("invoices", 0)
    return [record.value async for record in reader.read("invoices", 0, offsets)]
