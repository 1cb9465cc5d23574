"""The topics for whose replicas a transaction waits."""

import pytest

from knowledgepulse_worker.kafka.replicas import Replicas
from knowledgepulse_worker.settings import Settings
from support.topics import NAMES

pytestmark = pytest.mark.usefixtures("admin")


async def test_topics_that_are_short_of_replicas_are_named_while_a_transaction_waits(brokers, fit):
    """The brokers' error named no topic, once a former transaction could not be completed."""
    fit()
    brokers.add("__transaction_state", 1)
    brokers.replicas = {NAMES.contribute: (3, 1), "__transaction_state": (2, 1), NAMES.rejected: (3, 2)}
    replicas = Replicas(Settings(), lambda: True)

    await replicas.check()
    assert [str(wait) for wait in replicas.waits] == [
        "Produce to contribute: 1 of 2 replicas in sync (min.insync.replicas)",
        "Produce to __transaction_state/0: 1 of 2 replicas in sync (min.insync.replicas)",
    ]

    brokers.replicas.clear()
    await replicas.check()
    assert replicas.waits == ()


async def test_nothing_is_asked_while_no_transaction_waits(brokers, fit):
    fit()
    brokers.replicas = {NAMES.contribute: (3, 1)}
    replicas = Replicas(Settings(), lambda: False)

    await replicas.check()

    assert replicas.waits == ()
