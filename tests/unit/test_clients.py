"""The documents' tables of Kafka clients come from runs of the releases that the runners name."""

import pytest

from clients.check import AT_ONCE, FAILED, LATER, NEVER, _ends
from clients.client import BOUNDED, PUBLISH, READ, clients
from clients.results import kept
from generator.clients import keys, reads

CLIENTS = {client.name: client for client in clients()}
RUN = [client for client in CLIENTS.values() if not client.not_run]


@pytest.mark.parametrize("client", RUN, ids=lambda client: client.name)
def test_a_client_has_results_of_its_release_for_each_task_and_mode(client):
    found = kept(client)

    assert found["version"] == client.version
    for task in {PUBLISH if task == PUBLISH else READ for task in client.tasks}:
        assert set(found[task]) == set(client.modes(task))
        for result in found[task].values():
            assert not result.get("failed")
            assert (BOUNDED in result) == (task == READ and BOUNDED in client.tasks)


def test_a_client_that_is_not_run_says_why_in_both_tables():
    (row,) = {line for line in reads().splitlines() if "@confluentinc/kafka-javascript" in line}

    assert CLIENTS["confluent_js"].not_run in row
    assert CLIENTS["confluent_js"].not_run in keys()


@pytest.mark.parametrize(
    ("early", "late", "ends"),
    [(0, 0, AT_ONCE), (None, 0, LATER), (None, None, NEVER), (1, 1, FAILED), (None, 1, FAILED)],
)
def test_a_bounded_read_ends_with_status_0(early, late, ends):
    """Before the open transaction ends, or afterwards, or never."""
    assert _ends(early, late) == ends
