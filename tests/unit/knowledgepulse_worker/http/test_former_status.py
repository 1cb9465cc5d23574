"""What the page showed of a process survives it, until the next one has finished a record."""

import json

import pytest

from knowledgepulse_worker.http.former_status import FormerStatus


def status(at, *values, threshold=0.5, last_output=None):
    """Return a status as far as it is read."""
    domain = {"threshold": threshold, "share": None, "values": values, "passes": [True] * len(values)}
    fields = ("unprofiled", "fleet", "latency", "contributed", "rejected", "dead_letters")
    of_traces = {name: f"{name} of {at}" for name in fields}
    scores = {"limit": 1000, "domains": {"default": domain}}
    own = {"at": at, "before_restart": None, "outcomes": {"last_output": last_output}, "scores": scores}
    return json.loads(json.dumps(own | of_traces))


@pytest.fixture
def former():
    """Of a process that answered last at 7."""
    former = FormerStatus()
    former.keep(True, json.dumps(status(7, 0.25, 0.75, last_output=6)).encode())
    former.child_ended()
    return former


def test_records_of_the_former_process_are_shown_with_the_policy_in_force(former):
    shown = former.completed(True, status(9, threshold=0.7))

    assert (shown["at"], shown["before_restart"]) == (9, 7)
    assert shown["contributed"] == "contributed of 7"
    assert shown["scores"]["domains"]["default"] == {
        "threshold": 0.7,
        "share": None,
        "values": [0.25, 0.75],
        "passes": [True, True],
    }


def test_they_outlast_a_process_that_finished_nothing(former):
    former.keep(True, json.dumps(status(9)).encode())
    former.child_ended()

    shown = former.completed(True, status(11))

    assert (shown["before_restart"], shown["rejected"]) == (7, "rejected of 7")


def test_the_first_record_of_the_next_process_ends_them(former):
    own = status(9, 0.5, last_output=8)

    assert former.completed(True, own) == own


def test_what_has_content_is_shown_to_nobody_else(former):
    assert former.of(False) == {}
    assert former.completed(False, status(9)) == status(9)


def test_a_domain_that_is_new_has_no_records(former):
    own = status(9)
    own["scores"]["domains"]["code"] = {"threshold": 0.1, "share": None, "values": [], "passes": []}

    assert former.completed(True, own)["scores"]["domains"]["code"] == own["scores"]["domains"]["code"]
