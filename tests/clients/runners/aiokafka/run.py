import asyncio
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

KAFKA = {"bootstrap_servers": os.environ["KAFKA"]}
LEVEL = {"isolation_level": "read_committed"} if os.environ["SETTING"] else {}


async def read() -> None:
    topic, group = os.environ["TOPIC"], os.environ["GROUP"]
    async with AIOKafkaConsumer(
        topic, **KAFKA, **LEVEL, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            print(record.value.decode(), flush=True)


async def bounded() -> None:
    partition = TopicPartition(os.environ["TOPIC"], 0)
    async with AIOKafkaConsumer(**KAFKA, **LEVEL, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for record in (await consumer.getmany(timeout_ms=500)).get(partition, []):
                print(record.value.decode(), flush=True)


async def publish() -> None:
    async with AIOKafkaProducer(**KAFKA) as producer:
        for topic in os.environ["TOPICS"].split(","):
            for key in os.environ["KEYS"].split(",") * 3:
                await producer.send(topic, b"value", key=key.encode())


asyncio.run({"read": read, "bounded": bounded, "publish": publish}[os.environ["TASK"]]())
