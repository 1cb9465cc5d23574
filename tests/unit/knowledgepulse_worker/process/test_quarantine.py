"""What a process tells its parent about the records in progress, and which of them it works on alone."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from knowledgepulse_kafka.records import Location
from knowledgepulse_worker.process import quarantine as module
from knowledgepulse_worker.process.quarantine import ANNOUNCED_RECORDS, Caution, Quarantine

A, B = Location(0, 7), Location(1, 3)


@pytest.fixture
def told():
    """The messages that arrived; `told.full` is whether the pipe is full."""

    class Told(list):
        full = False

        def send(self, message):
            if not self.full:
                self.append(dict(message))
            return not self.full

    return Told()


def test_what_a_full_pipe_did_not_take_is_announced_with_the_next_record(told):
    quarantine = Quarantine(send=told.send)

    told.full = True
    quarantine.announce(A)
    told.full = False
    quarantine.announce(Location(0, 8))

    assert told == [{"below": (0, 8 + ANNOUNCED_RECORDS)}]


async def test_no_record_begins_before_the_parent_can_learn_of_it(told, monkeypatch):
    monkeypatch.setattr(module, "FULL_PIPE_PAUSE", 0)
    quarantine, told.full = Quarantine(send=told.send), True
    begun = asyncio.Event()

    async def process():
        async with quarantine.alone(A):
            begun.set()

    processing = asyncio.create_task(process())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not begun.is_set()

    told.full = False
    await processing

    assert told == [{"alone": A}, {"alone": None}]


@pytest.mark.parametrize(
    ("error", "last"), [(RuntimeError, {"alone": A}), (asyncio.CancelledError, {"alone": None})]
)
async def test_a_record_whose_processing_raised_stays_in_progress_and_a_cancelled_one_does_not(
    told, error, last
):
    with pytest.raises(error):
        async with Quarantine(send=told.send).alone(A):
            raise error

    assert told[-1] == last


def test_records_below_the_offset_that_a_dead_process_announced_are_alone():
    quarantine = Quarantine(Caution(below={0: 7}), most=100)

    assert quarantine.is_alone(Location(0, 6))
    assert not quarantine.is_alone(Location(0, 7))
    assert not quarantine.is_alone(Location(1, 0))

    quarantine.announce(Location(0, 7))
    assert not quarantine.any


async def test_no_more_records_are_alone_than_can_have_been_in_flight():
    """A topic that was recreated begins at offset 0, and a group may be reset to any."""
    quarantine = Quarantine(Caution(below={0: 1_000_000}), most=2)

    for offset in range(2 + ANNOUNCED_RECORDS):
        assert quarantine.is_alone(Location(0, offset))
        async with quarantine.alone(Location(0, offset)):
            pass

    assert not quarantine.is_alone(Location(0, 2 + ANNOUNCED_RECORDS))
    assert not quarantine.any


async def test_a_record_that_comes_again_counts_once_among_those_that_are_alone():
    """After a rebalance; the deadly record behind it was no longer alone, so it killed one worker more."""
    quarantine = Quarantine(Caution(below={0: 1_000_000}), most=2)

    for _ in range(2 + ANNOUNCED_RECORDS):
        async with quarantine.alone(Location(0, 0)):
            pass

    assert quarantine.is_alone(Location(0, 1))


def test_a_suspect_is_alone_until_it_is_committed(told):
    quarantine = Quarantine(Caution(suspects=frozenset({A, B}), dead_letters=frozenset({A})), told.send)
    assert quarantine.partitions == (0, 1)
    assert (quarantine.is_dead_letter(A), quarantine.is_dead_letter(B)) == (True, False)

    quarantine.committed(0, 7)
    assert quarantine.is_alone(A)
    quarantine.committed(0, 8)

    assert not quarantine.is_alone(A)
    assert quarantine.is_alone(B)
    assert told == [{"committed": (0, 8)}]


def test_nothing_is_told_once_a_record_may_have_ended_the_process(told):
    quarantine = Quarantine(send=told.send)

    quarantine.close(blames_records=True)
    quarantine.close()
    quarantine.announce(A)

    assert told == []


def test_records_are_told_until_a_process_exits_that_ends_for_another_reason(told):
    quarantine = Quarantine(send=told.send)

    quarantine.close()
    quarantine.close(blames_records=True)
    quarantine.announce(A)

    assert told == [{"blameless": True}, {"below": (A.partition, A.offset + ANNOUNCED_RECORDS)}]


def test_caution_is_read_as_it_was_written():
    caution = Caution({3: 70}, frozenset({A, B}), frozenset({A}), frozenset({B}))

    assert msgspec.json.decode(msgspec.json.encode(caution), type=Caution) == caution
