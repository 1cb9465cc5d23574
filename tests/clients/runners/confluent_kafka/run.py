import os

from confluent_kafka import Consumer, KafkaError, Producer

KAFKA = {"bootstrap.servers": os.environ["KAFKA"]}


def consumed(**settings: object) -> Consumer:
    consumer = Consumer(
        {**KAFKA, "group.id": os.environ["GROUP"], "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe([os.environ["TOPIC"]])
    return consumer


def read() -> None:
    consumer = consumed()
    while True:
        if (message := consumer.poll(1)) and not message.error():
            print(message.value().decode(), flush=True)


def bounded() -> None:
    consumer = consumed(**{"enable.partition.eof": True, "group.id": "bounded-" + os.environ["GROUP"]})
    while True:
        if message := consumer.poll(1):
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                return
            print(message.value().decode(), flush=True)


def publish() -> None:
    producer = Producer({**KAFKA, **({"partitioner": "murmur2_random"} if os.environ["SETTING"] else {})})
    for topic in os.environ["TOPICS"].split(","):
        for key in os.environ["KEYS"].split(",") * 3:
            producer.produce(topic, key=key, value=b"value")
    producer.flush()


{"read": read, "bounded": bounded, "publish": publish}[os.environ["TASK"]]()
