"""Faust around the source: that its agent loses no batch, and that its app ends when it must."""

import asyncio
import socket
from functools import partial

import psutil
import pytest
from aiokafka.errors import KafkaError
from msgspec.structs import replace

from knowledgepulse_kafka.errors import DeliveryError
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.records.ledger_records import ENTRY_VERSION, encode_entry
from knowledgepulse_worker.stream.faust import FaustApp
from support.ledger import scored

RAW = "raw-traces"


class FaustProgram:
    """A worker in Faust's app, which has fully started after the first rebalance."""

    def __init__(self, worker):
        self._parent, child = socket.socketpair()
        self.app = FaustApp(worker, child.detach())

    @property
    def source(self):
        return self.app.source

    async def start(self):
        self._starting = asyncio.create_task(self.app.start())

    async def stop(self):
        await self.app.stop()
        self._starting.cancel()
        await asyncio.wait([self._starting])
        self._parent.close()


@pytest.fixture
def _asyncio_loop_factory():
    """Faust waits for threads and sockets, which virtual time does not know."""


@pytest.fixture
def start(start_in):
    return partial(start_in, FaustProgram)


@pytest.mark.slow
async def test_records_fetched_before_a_rebalance_are_not_skipped_after_it(start):
    """Records that wait for a full lane when its partition is revoked are read again, in order."""
    world = await start(in_flight_records=2)
    world.hold()
    world.publish(0, *range(20))
    await world.member.rebalance([0])
    await world.until(lambda: world.metric("kp_in_flight_records") == 2)
    revoking = asyncio.create_task(world.member.rebalance([0]))
    await asyncio.sleep(0)
    world.hold(False)
    await revoking
    await world.committed({0: 20})

    assert world.outputs() == list(range(20))


async def test_the_pages_are_served_where_no_other_process_can_connect(start):
    """They were on an abstract socket, which has no owner: any user could read what `web` hides."""
    world = await start()
    await world.member.rebalance([0])
    sockets = psutil.Process().net_connections("all")

    assert [
        at for at in sockets if at.status == psutil.CONN_LISTEN or (at.family == socket.AF_UNIX and at.laddr)
    ] == []


async def test_the_end_of_the_group_membership_is_reported_in_one_line(start):
    world = await start()
    await world.member.rebalance([0])

    world.member.error = KafkaError("the group is gone")

    await world.until(lambda: world.failures)
    assert str(world.failures[0]) == "kafka.group: knowledgepulse-worker: KafkaError('the group is gone')"


async def test_a_ledger_entry_of_a_newer_worker_is_reported_in_one_line(start):
    """Several ledgers are read at once, and a group of errors would name neither topic nor offset."""
    world = await start()
    changelog = world.changelog
    newer = encode_entry(replace(scored(1), version=ENTRY_VERSION + 1))
    world.append(changelog, 0, b"0", newer)

    await world.member.rebalance([0])

    await world.until(lambda: world.failures)
    (failure,) = world.failures
    assert str(failure).startswith(f"{changelog}: changelog partition 0, offset 0: entry has format version")
    assert not world.program.app.crashed


async def test_a_failed_transaction_ends_the_process_without_a_crash_of_the_app(start, monkeypatch):
    """An outage or a suspension is no defect, so the log has no traceback, and no record is blamed."""
    world = await start()
    error = DeliveryError("a transaction took longer than 10 s")

    async def fail(*_transaction):
        raise error

    await world.member.rebalance([0])
    monkeypatch.setattr(world.source.session, "commit", fail)
    world.publish(0, 1)

    await world.until(lambda: world.failures)
    await world.source.commit()
    assert world.failures == [error]
    assert not world.program.app.crashed


async def test_a_batch_that_the_agent_fails_to_pass_on_ends_the_app(start, monkeypatch):
    """Faust would restart the agent, and the records behind the batch would be committed without it."""
    world = await start()

    def fail(_task, _records):
        raise RuntimeError("a defect")

    monkeypatch.setattr(PartitionTask, "feed", fail)
    world.publish(0, 1)
    await world.member.rebalance([0])

    await world.until(lambda: world.program.app.crashed)
    assert world.outputs() == []
