import os

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

KAFKA = {"bootstrap_servers": os.environ["KAFKA"]}
LEVEL = {"isolation_level": "read_committed"} if os.environ["SETTING"] else {}


def read() -> None:
    topic, group = os.environ["TOPIC"], os.environ["GROUP"]
    for record in KafkaConsumer(topic, **KAFKA, **LEVEL, group_id=group, auto_offset_reset="earliest"):
        print(record.value.decode(), flush=True)


def bounded() -> None:
    partition = TopicPartition(os.environ["TOPIC"], 0)
    consumer = KafkaConsumer(**KAFKA, **LEVEL, auto_offset_reset="earliest")
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    while consumer.position(partition) < end:
        for record in consumer.poll(timeout_ms=500).get(partition, []):
            print(record.value.decode(), flush=True)


def publish() -> None:
    producer = KafkaProducer(**KAFKA)
    for topic in os.environ["TOPICS"].split(","):
        for key in os.environ["KEYS"].split(",") * 3:
            producer.send(topic, b"value", key=key.encode())
    producer.flush()


{"read": read, "bounded": bounded, "publish": publish}[os.environ["TASK"]]()
