"""Outputs that are too large for their topic are told, but not each of them."""

from msgspec.structs import replace

from knowledgepulse_kafka import log_interval
from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_worker.lane.size_log import SizeLog

OUTPUT = OutputRecord("contribute", 0, 0, b"key", b"v" * 5000, (("name", b"value"),))


def test_a_line_per_topic_and_minute_names_the_topic_the_limit_and_the_remedy(caplog, monkeypatch):
    monkeypatch.setattr(log_interval, "LOG_INTERVAL", 0.0)
    log = SizeLog()
    log.note(OUTPUT, "raw/0/1")
    monkeypatch.setattr(log_interval, "LOG_INTERVAL", 1e9)
    for offset in range(2, 5):
        log.note(OUTPUT, f"raw/0/{offset}")
    log.note(replace(OUTPUT, topic="rejected"), "raw/0/5")
    monkeypatch.setattr(log_interval, "LOG_INTERVAL", 0.0)
    log.note(OUTPUT, "raw/0/6")

    assert [record.getMessage().partition(", the latest")[0] for record in caplog.records] == [
        "contribute: outputs exceed its max.message.bytes and become dead letters (too_large): 1",
        "rejected: outputs exceed its max.message.bytes and become dead letters (too_large): 1",
        "contribute: outputs exceed its max.message.bytes and become dead letters (too_large): 4",
    ]
    assert "the latest for raw/0/6 with 5,012 bytes; raise the limit, then" in caplog.text
    assert "`kp-worker dead-letters replay --reason too_large`" in caplog.text
