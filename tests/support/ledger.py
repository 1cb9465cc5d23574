"""Ledger entries."""

import numpy as np

from knowledgepulse_worker.records.ledger_records import ENTRY_VERSION, Entry, Failure, encode_vector
from support.lanes import VECTORS

MODEL = "model-1"
DEAD = Failure("empty", "InvalidRecordError", "no value")

SCORE = (
    b'{"score":0.5,"complexity":0.5,"novelty":0.5,"tool_diversity":0.5,"outcome_confidence":0.5,"overrides":[],'
    b'"domain":"default","threshold":0.75,"nearest":null}'
)


def scored(offset, vector=VECTORS[0], seconds=0, model=MODEL, topic_id=b""):
    return Entry(
        offset,
        seconds * 1000,
        trace_id=f"kp:trace:{offset}",
        decision="rejected",
        score=SCORE,
        vector=encode_vector(np.array(vector, dtype=np.float32)),
        model=model,
        version=ENTRY_VERSION,
        topic_id=topic_id,
    )


def dead(offset, seconds=0):
    """Return the entry of a dead letter, which releases before 0.3.0 wrote."""
    return Entry(offset, seconds * 1000, b"%8d" % offset, failure=DEAD, version=2)
