"""Why the brokers no longer serve the worker's client, with the setting to change."""

import pytest

from knowledgepulse_kafka.aiokafka_types import (
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
)
from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.stream.refusal import explained

HEARTBEAT = Wait("Heartbeat", "broker-1:9092", error="NOT_COORDINATOR (16)")
FULL = Wait("JoinGroup", "broker-1:9092", error="GROUP_MAX_SIZE_REACHED (81)")


@pytest.mark.parametrize(
    ("error", "waits", "text"),
    [
        (InconsistentGroupProtocolError(), [], "kafka.group: kp: workers of a release before 0.3.0"),
        (InvalidSessionTimeoutError(), [], "kafka.session_timeout: the brokers do not accept it"),
        (KafkaError("UnknownError()"), [FULL], "kafka.group: kp: it is full (group.max.size of the brokers)"),
        (KafkaError("?"), [HEARTBEAT], "consumer group: Heartbeat to broker-1:9092: NOT_COORDINATOR (16)"),
        (KafkaError("the client is closed"), [], "consumer group: KafkaError('the client is closed')"),
    ],
)
def test_the_reason_names_what_to_change_or_the_brokers_last_error(error, waits, text):
    assert str(explained(error, "kp", waits)).startswith(text)
