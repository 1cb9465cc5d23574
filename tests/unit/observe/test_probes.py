"""Alive, and ready."""

from __future__ import annotations

import json

from worker.observe.probes import Readiness, live, ready


def answer(readiness):
    status, body = ready(readiness.reasons)
    return status, json.loads(body)


def test_a_worker_is_ready_once_it_knows_its_partitions_and_their_ledgers():
    readiness = Readiness()
    assert answer(readiness)[0] == 503
    assert len(answer(readiness)[1]["reasons"]) == 2

    readiness.done("partitions")
    assert answer(readiness) == (
        503,
        {"ready": False, "reasons": ["the ledgers of the partitions are not recovered yet"]},
    )

    readiness.done("ledgers")
    assert answer(readiness) == (200, {"ready": True, "reasons": []})


def test_a_later_rebalance_does_not_make_it_unready():
    readiness = Readiness()
    for step in ("partitions", "ledgers", "partitions", "ledgers"):
        readiness.done(step)
    assert answer(readiness)[0] == 200


def test_who_answers_is_alive():
    assert live() == (200, b'{"live": true}')
