"""Ledger entries, and the broker's confirmations of them."""

import numpy as np

from knowledgepulse_worker.records.entry import ENTRY_VERSION, Entry, Failure, decode_entry, encode_vector
from support.lanes import VECTORS

MODEL = "model-1"
DEAD = Failure("empty", "InvalidRecordError", "no value")

SCORE = (
    b'{"score":0.5,"complexity":0.5,"novelty":0.5,"tool_diversity":0.5,"outcome_confidence":0.5,"overrides":[],'
    b'"domain":"default","threshold":0.75,"nearest":null}'
)


def scored(offset, vector=VECTORS[0], seconds=0, model=MODEL, window=2):
    return Entry(
        offset,
        seconds * 1000,
        b"%8d" % offset,
        trace_id=f"kp:trace:{offset}",
        decision="rejected",
        score=SCORE,
        vector=encode_vector(np.array(vector, dtype=np.float32)),
        model=model,
        window=window,
        version=ENTRY_VERSION,
    )


def dead(offset, seconds=0, window=2):
    return Entry(offset, seconds * 1000, b"%8d" % offset, failure=DEAD, window=window, version=ENTRY_VERSION)


def entry_of(changelog, offset):
    """Return the changelog's entry at an offset, if any."""
    value = changelog.entries.get(offset)
    return None if value is None else decode_entry(value)


def confirm(changelog, *writes):
    """Confirm writes of source offsets and values, in order."""
    for offset, value in writes:
        changelog.confirmed(1 + (-1 if changelog.position is None else changelog.position), offset, value)
