"""Which dead letters a replay skips."""

import pytest
from msgspec.structs import replace

from knowledgepulse_kafka.topics import Topic
from knowledgepulse_worker.tools.dead_letters.letter import DeadLetter
from knowledgepulse_worker.tools.dead_letters.replay import skip_reason
from support.letters import TOPICS, buried, raw_record

RAW = Topic(TOPICS.raw, partitions=4, max_message_bytes=1_048_588)


@pytest.mark.parametrize(
    ("letter", "reason"),
    [
        (buried(raw_record()), None),
        (buried(raw_record(headers=(("kp-attempt", b"2"),))), None),
        (buried(raw_record(headers=(("kp-attempt", b"3"),))), "too many attempts"),
        (buried(raw_record(headers=(("kp-attempt", b"4"),))), "too many attempts"),
        (buried(replace(raw_record(), topic="otlp_spans")), "of another topic"),
        (buried(raw_record(value=b""), "empty"), "empty"),
        (buried(raw_record(value=None), "empty"), "empty"),
        (buried(raw_record(value=b"x" * 5000), cut=True), "truncated"),
        (buried(raw_record(headers=(("kp-value-length", b"5000"),))), None),
        (buried(raw_record(value=b"x" * 1_048_000)), None),
        (buried(raw_record(value=b"x" * 1_048_576)), "too large"),
    ],
)
def test_skips_letters_that_cannot_or_must_not_be_replayed(letter, reason):
    assert skip_reason(DeadLetter.read(letter), RAW, max_attempts=3) == reason
