"""Why the brokers no longer serve a group member, with the setting to change."""

import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
)

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import BrokerError
from knowledgepulse_kafka.membership_errors import membership_error
from knowledgepulse_kafka.request_waits import Waits
from knowledgepulse_kafka.wait import Wait

HEARTBEAT = Wait("Heartbeat", "broker-1:9092", error="NOT_COORDINATOR (16)")
FULL = Wait("JoinGroup", "broker-1:9092", error="GROUP_MAX_SIZE_REACHED (81)")


@pytest.mark.parametrize(
    ("error", "waits", "text"),
    [
        (InconsistentGroupProtocolError(), [], "kafka.group: kp: another application has members"),
        (InvalidSessionTimeoutError(), [], "kafka.session_timeout: the brokers do not accept it"),
        (KafkaError("UnknownError()"), [FULL], "kafka.group: kp: it is full (group.max.size of the brokers)"),
        (GroupAuthorizationFailedError("kp"), [], "the brokers' ACLs do not allow: "),
        (KafkaError("?"), [HEARTBEAT], "kafka.group: kp: Heartbeat to broker-1:9092: NOT_COORDINATOR (16)"),
        (KafkaError("the client is closed"), [], "kafka.group: kp: KafkaError('the client is closed')"),
    ],
)
def test_the_reason_names_what_to_change_or_the_brokers_last_error(error, waits, text, monkeypatch):
    last = Waits()
    monkeypatch.setattr(last, "current", lambda _: waits)
    assert str(membership_error(error, Config(group="kp", prefix="kafka."), last)).startswith(text)


def test_a_session_timeout_that_the_brokers_refuse_is_a_matter_of_settings():
    """The worker was started again and again, and ended with status 1 instead of 78."""
    error = membership_error(InvalidSessionTimeoutError(), Config(group="kp"), Waits())
    assert isinstance(error, BrokerError)
