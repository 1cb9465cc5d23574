import asyncio
import os
import sys

import faust

GUARANTEE = {"processing_guarantee": "exactly_once"} if os.environ["SETTING"] else {}
app = faust.App(
    os.environ.get("GROUP", "publisher"),
    broker="kafka://" + os.environ["KAFKA"],
    web_enabled=False,
    topic_disable_leader=True,
    **GUARANTEE,
)


async def read(values: faust.Stream[bytes]) -> None:
    async for value in values:
        print(value.decode(), file=sys.__stdout__, flush=True)  # the worker logs what comes to the other


async def publish() -> None:
    for topic in os.environ["TOPICS"].split(","):
        for key in os.environ["KEYS"].split(",") * 3:
            await app.topic(topic, key_serializer="raw", value_serializer="raw").send(key=key, value=b"value")
    await app.producer.flush()
    await app.stop()


async def start() -> None:
    await app.start()
    await (publish() if os.environ["TASK"] == "publish" else asyncio.Event().wait())


if os.environ["TASK"] == "read":
    app.agent(app.topic(os.environ["TOPIC"], value_serializer="raw"))(read)
if __name__ == "__main__":
    asyncio.run(start())
