"""Brokers that are no Apache Kafka are named as what they lack, before a worker has started."""

from __future__ import annotations

import os

import pytest

from knowledgepulse_worker.tools.demo.brokers import EMBEDDED, first_available
from support.commands import kp_worker
from support.other_brokers import DESCRIBE_CONFIGS, INIT_PRODUCER_ID, TRANSACTIONAL, OtherBroker

pytestmark = pytest.mark.integration

ANSWERS = "answers, and grants what a worker needs"


async def told(make_stream, config, command, *options, **differences):
    """Return the status and the output of a command with such a broker."""
    stream = await make_stream(1)
    async with OtherBroker(stream.settings.kafka.bootstrap_servers, **differences).serving() as broker:
        settings = config(stream.configured(kafka={"bootstrap_servers": broker.address}))
        status, output, errors = await kp_worker(command, *options, "--config", settings)
    return status, (output + errors).replace(broker.address, "BROKER")


@pytest.mark.parametrize("command", ["check", "run"])
async def test_brokers_that_do_not_know_transactions_end_the_start(make_stream, config, command):
    status, said = await told(make_stream, config, command, hides=TRANSACTIONAL)

    assert status == os.EX_CONFIG
    assert "BROKER: the brokers do not know InitProducerId, " in said
    assert "so they have no transactions" in said
    assert "topics: " not in said


async def test_brokers_that_refuse_transactions_are_told_by_a_trial(make_stream, config):
    plain = await told(make_stream, config, "check", fails_at={INIT_PRODUCER_ID})
    tried = await told(make_stream, config, "check", "--try", fails_at={INIT_PRODUCER_ID})

    assert (plain[0], tried[0]) == (0, os.EX_CONFIG)
    assert "\ntransactions: FAILED: " in tried[1]
    assert "BROKER: the brokers refuse transactions" in tried[1]


async def test_a_worker_whose_transactions_are_refused_ends_at_once(make_stream, config):
    status, said = await told(make_stream, config, "run", fails_at={INIT_PRODUCER_ID})

    assert status == os.EX_CONFIG
    assert "the brokers refuse transactions" in said


async def test_a_connection_that_is_closed_names_the_request(make_stream, config):
    status, said = await told(make_stream, config, "check", closes_at={DESCRIBE_CONFIGS})

    assert status == 1
    assert "\ntopics: FAILED: " in said
    assert "BROKER: closes the connection at DescribeConfigs version " in said
    assert f"kafka: ok: BROKER {ANSWERS}" in said


async def test_a_trial_transaction_changes_no_topic(make_stream, config):
    stream = await make_stream(1)

    status, output, _ = await kp_worker("check", "--try", "--config", config(stream.settings))

    group = stream.settings.kafka.group
    assert status == 0
    assert f"\ntransactions: ok: one was begun as {group}-run-check, and aborted\n" in output
    assert await stream.all_outputs() == []


@pytest.fixture
def embedded():
    """The address of the demo's broker."""
    with first_available([EMBEDDED], print) as broker:
        yield broker.bootstrap_servers


async def test_the_broker_of_the_demo_has_what_a_worker_needs(embedded):
    environment = {"KP_KAFKA__BOOTSTRAP_SERVERS": embedded, "KP_EMBEDDING__BACKEND": "none"}

    created = await kp_worker("topics", **environment)
    status, output, _ = await kp_worker("check", "--try", **environment)

    assert (created[0], status) == (0, 0)
    assert ANSWERS in output
