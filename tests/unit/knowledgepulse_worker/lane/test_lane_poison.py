"""Records that killed workers: how the next process treats them, and what it notes for the one after it.

`process/test_poison.py` tests which records those are; `integration/test_poison.py` all of it together.
"""

import asyncio
import dataclasses

import pytest

from knowledgepulse_worker.lane import lane as lane_module
from knowledgepulse_worker.records.journal import Journal, Suspect, Treatment, shared_memory
from knowledgepulse_worker.records.record import Location

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def suspecting(make_harness):
    """Make a harness whose journal has a suspect; `in_progress()` is what the parent would find."""

    def make(location=None, treatment=None):
        harness, memory = make_harness(), shared_memory()
        if location is not None:
            Journal(memory).prepare({location: Suspect(3, treatment)})
        harness.services = dataclasses.replace(harness.services, journal=Journal(memory))
        harness.in_progress = lambda: Journal(memory).in_progress()
        return harness

    return make


def reasons(harness):
    return {(one.partition, dict(one.headers).get("kp-reason")) for one in harness.outputs()}


@pytest.mark.parametrize("treatment", [Treatment.DEAD_LETTER, Treatment.SKIPPED])
async def test_a_deadly_record_is_buried_or_skipped_untouched_and_changes_no_other(
    suspecting, raw, monkeypatch, treatment
):
    decoded = []
    decode = lane_module.decode_trace
    monkeypatch.setattr(lane_module, "decode_trace", lambda *given: decoded.append(given) or decode(*given))
    harness = suspecting(Location(0, 1), treatment)

    await harness.processed(await harness.lane(), raw(0), raw(1), raw(2))

    outputs = harness.outputs()
    assert len(decoded) == len(harness.embedder.texts) == 2
    assert b'"nearest":"kp:trace:0/0"' in dict(outputs[-1].headers)["kp-score"]
    if treatment is Treatment.SKIPPED:
        assert len(outputs) == 2
    else:
        assert (outputs[1].topic, outputs[1].value) == (harness.dead_letter, raw(1).value)
        assert reasons(harness) == {(0, None), (0, b"poison")}
    assert harness.metric("kp_poison_skipped_total") == (treatment is Treatment.SKIPPED)


async def test_a_suspect_is_alone_in_flight(suspecting, raw):
    """So that its death tells that it was the one."""
    harness = suspecting(Location(1, 0), Treatment.ISOLATED)
    harness.embedder.free.clear()
    assignment = harness.assignment()
    tasks = assignment.tasks
    await tasks[0].take(raw(0))
    taking = [asyncio.create_task(tasks[p].take(raw(n, partition=p))) for p, n in ((1, 0), (0, 1))]
    await harness.settle()
    assert harness.in_progress() == {Location(0, 0)}

    harness.embedder.free.set()
    await harness.until(lambda: len(harness.embedder.texts) == 1)
    await harness.settle()
    assert len(harness.embedder.texts) == 1  # it also waits for the commit

    async with asyncio.timeout(60):
        while (tasks[0].committed, tasks[1].committed) != (2, 1):
            await assignment.commit(harness.publisher.publish)
            await asyncio.sleep(0)
    await asyncio.gather(*taking)


async def test_a_record_is_in_progress_until_it_is_scored(suspecting, raw):
    harness = suspecting()
    harness.embedder.free.clear()
    lane = await harness.lane()
    await lane.take(raw(0))
    assert harness.in_progress() == {Location(0, 0)}

    harness.embedder.free.set()
    await harness.until(lane.complete)
    assert harness.in_progress() == set()


@pytest.mark.parametrize("dies", ["decoding", "scoring"])
async def test_a_record_whose_processing_raised_stays_in_progress(suspecting, raw, monkeypatch, dies):
    harness = suspecting()

    def fail(*_):
        raise RuntimeError

    if dies == "decoding":
        monkeypatch.setattr(lane_module, "decode_trace", fail)
    else:
        monkeypatch.setattr(harness.services.replacements.outputs, "build", fail)

    harness.assignment().tasks[0].feed([raw(0)])
    await harness.until(lambda: harness.failures)

    assert harness.in_progress() == {Location(0, 0)}
