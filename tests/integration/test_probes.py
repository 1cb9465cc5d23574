"""The probes of a real worker."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
import pytest

from chaos.embedder import Order, Orders
from chaos.process import ORDERS
from support import metrics_page as page
from support.streams import Message

pytestmark = pytest.mark.integration


async def ready(worker):
    """Wait until the worker is ready."""
    async with asyncio.timeout(120):
        while True:
            with suppress(aiohttp.ClientConnectionError):
                if (await worker.get("/readyz"))[0] == 200:
                    return
            await asyncio.sleep(0.05)


async def test_probes_respond_while_a_batch_is_being_embedded(make_stream, real_traces, tmp_path):
    orders = Orders(tmp_path / "orders", Order(mode="work"))
    stream = await make_stream(1)
    async with stream.worker(module="chaos.process", environment={ORDERS: str(orders.path)}) as worker:
        await ready(worker)
        orders.block(seconds=600)
        raw = await stream.publish(Message(line) for line in real_traces[:5])
        await worker.has_in_flight(5)
        answers = [await worker.get(path) for path in ("/livez", "/readyz")]
        published = page.value(await worker.metrics(), "kp_traces_total")
        orders.as_usual()
        await stream.outputs(worker, raw)

    assert published == 0
    assert answers == [(200, '{"live": true}'), (200, '{"ready": true, "reasons": []}')]
