"""The plain loop on confluent-kafka: python -m bench.peers.confluent_loop SERVERS SOURCE TARGET."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, Message, Producer

from bench.peers.loop import COMMIT_INTERVAL, SESSION, Task, parse_task, scored


def require_delivery(error: KafkaError | None, message: Message) -> None:
    assert error is None, error


def main(task: Task) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": task.servers,
            "group.id": task.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION * 1000,
        }
    )
    producer = Producer({"bootstrap.servers": task.servers, "acks": "all", "linger.ms": 5})
    consumer.subscribe([task.source])
    committed = time.monotonic()
    uncommitted = False
    while True:
        for message in consumer.consume(500, timeout=0.2):
            assert message.error() is None, message.error()
            producer.produce(
                task.target, scored(message.value()), key=message.key(), on_delivery=require_delivery
            )
            uncommitted = True
        producer.poll(0)
        if uncommitted and time.monotonic() - committed > COMMIT_INTERVAL:
            producer.flush()
            consumer.commit(asynchronous=False)
            committed, uncommitted = time.monotonic(), False


if __name__ == "__main__":
    main(parse_task())
