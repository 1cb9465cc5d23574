"""Quix Streams, at least once: python -m bench.peers.quix_loop SERVERS SOURCE TARGET."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from quixstreams import Application

from bench.peers.loop import COMMIT_INTERVAL, SESSION, Task, parse_task, scored


def main(task: Task, folder: str) -> None:
    app = Application(
        broker_address=task.servers,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        commit_interval=COMMIT_INTERVAL,
        processing_guarantee="at-least-once",
        state_dir=folder,
        consumer_extra_config={"session.timeout.ms": SESSION * 1000},
        producer_extra_config={"acks": "all", "linger.ms": 5},
        loglevel="WARNING",
    )
    source = app.topic(task.source, key_deserializer="bytes", value_deserializer="bytes")
    target = app.topic(task.target, key_serializer="bytes", value_serializer="bytes")
    app.dataframe(source).apply(scored).to_topic(target)
    app.run()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(parse_task(), folder)
