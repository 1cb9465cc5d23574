"""A worker that is stopped while no broker answers ends in time, and says why."""

from __future__ import annotations

import pytest

from chaos.brokers import running_brokers
from chaos.process import HELD, HOLD, RELEASE
from support.processes import send, tree
from support.streams import Message, Stream, own_settings

pytestmark = pytest.mark.integration

SETTINGS = {"embedding": {"backend": "none"}, "limits": {"drain": 3.0}}


@pytest.fixture(scope="module")
def broker():
    """A broker that no other module uses."""
    with running_brokers(1) as brokers:
        yield brokers.nodes[0]


@pytest.fixture
async def stream(broker, tmp_path):
    """A stream on that broker, which is started again if the test before has killed it."""
    if broker.process.poll() is not None:
        await broker.start_again()
    stream = Stream(own_settings(broker.direct, "ends", SETTINGS), tmp_path)
    await stream.create_topics(2)
    return stream


async def test_an_idle_worker_whose_broker_is_gone_ends_as_usual(broker, stream, real_traces):
    """It ended with status 1 and the traceback of a cancelled fetch."""
    async with stream.worker() as worker:
        await stream.publish([Message(trace, partition=0) for trace in real_traces])
        await worker.published(len(real_traces))
        await broker.kill()
        await worker.logged("Waiting for Kafka: ")

        assert await worker.stop() == 0
    assert "Traceback" not in worker.log()


async def test_a_worker_whose_last_transaction_cannot_be_committed_says_so(broker, stream, real_traces):
    """Nothing is lost: the partitions' next owner scores its records again."""
    async with stream.worker(module="chaos.process") as worker:
        await worker.owns(2)
        child = tree(worker.process.pid)[1:]
        send(child, HOLD["commit"])
        await stream.publish([Message(trace, partition=0) for trace in real_traces[:5]])
        await worker.logged(HELD)
        await broker.kill()
        send(child, RELEASE)

        assert await worker.stop() == 1
    log = worker.log()
    assert "the last transaction was not committed in 3 s (limits.drain)" in log
    assert "Traceback" not in log
