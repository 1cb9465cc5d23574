"""Liveness and readiness."""

from __future__ import annotations

import json

from knowledgepulse_worker.http.probes import Readiness, ready


def answer(readiness):
    status, body = ready(readiness.reasons)
    return status, json.loads(body)


def test_a_worker_is_ready_once_partitions_are_assigned_and_ledgers_recovered():
    readiness = Readiness()
    assert answer(readiness)[0] == 503
    assert len(answer(readiness)[1]["reasons"]) == 2

    readiness.done("partitions")
    assert answer(readiness) == (
        503,
        {"ready": False, "reasons": ["ledgers are not recovered yet"]},
    )

    readiness.done("ledgers")
    assert answer(readiness) == (200, {"ready": True, "reasons": []})
