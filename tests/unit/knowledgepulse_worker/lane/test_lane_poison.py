"""Records that killed workers: how the next process treats them, and what it notes for the one after it.

`process/test_poison.py` tests which records those are; `integration/test_poison.py` all of it together.
"""

import dataclasses

import pytest

from knowledgepulse_kafka.records import Location
from knowledgepulse_worker.lane import record_reader
from knowledgepulse_worker.process.quarantine import Caution, Quarantine

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def suspecting(make_harness):
    """Make a harness in whose process some records may be deadly; `told` is what the parent was told."""

    def make(**caution):
        harness = make_harness()
        harness.told = []
        quarantine = Quarantine(Caution(**caution), lambda message: harness.told.append(message) or True, 100)
        harness.services = dataclasses.replace(harness.services, quarantine=quarantine)
        return harness

    return make


def reasons(harness):
    return {(output.partition, dict(output.headers).get("kp-reason")) for output in harness.outputs()}


@pytest.mark.parametrize("treatment", ["dead_letters", "skipped"])
async def test_a_deadly_record_is_buried_or_skipped_untouched_and_changes_no_other(
    suspecting, raw, monkeypatch, treatment
):
    decoded = []
    decode = record_reader.decode_scorable
    monkeypatch.setattr(
        record_reader, "decode_scorable", lambda *given: decoded.append(given) or decode(*given)
    )
    harness = suspecting(**{treatment: frozenset({Location(0, 1)})})

    await harness.processed(await harness.lane(), raw(0), raw(1), raw(2))

    outputs = harness.outputs()
    assert len(decoded) == len(harness.embedder.texts) == 2
    assert b'"nearest":"kp:trace:0/0"' in dict(outputs[-1].headers)["kp-score"]
    if treatment == "skipped":
        assert len(outputs) == 2
    else:
        assert (outputs[1].topic, outputs[1].value) == (harness.dead_letter, raw(1).value)
        assert reasons(harness) == {(0, None), (0, b"poison")}
    assert harness.metric("kp_poison_skipped_total") == (treatment == "skipped")


@pytest.mark.parametrize("dies", ["decoding", "scoring"])
async def test_a_record_whose_processing_raised_stays_in_progress(suspecting, raw, monkeypatch, dies):
    harness = suspecting(below={0: 1})

    def fail(*_):
        raise RuntimeError

    if dies == "decoding":
        monkeypatch.setattr(record_reader, "decode_scorable", fail)
    else:
        monkeypatch.setattr(harness.services.replacements.outputs, "build", fail)

    harness.assignment().tasks[0].feed([raw(0)])
    await harness.until(lambda: harness.failures)

    assert harness.told[-1] == {"alone": Location(0, 0)}


async def test_a_record_is_no_longer_in_progress_once_its_partition_is_revoked(suspecting, raw):
    harness = suspecting(below={0: 1})
    harness.embedder.free.clear()
    assignment = harness.assignment()
    assignment.tasks[0].feed([raw(0)])
    await harness.until(lambda: len(harness.told) == 2)

    assignment.close()
    await harness.until(lambda: len(harness.told) == 3)

    assert harness.told[-1] == {"alone": None}
