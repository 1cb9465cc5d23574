"""Print each scored trace: consumer.py [SERVERS [TOPIC...]]. It runs until Ctrl-C."""

import asyncio
import json
import sys
from contextlib import suppress

from aiokafka import AIOKafkaConsumer

from knowledgepulse_schemas import last_header


async def main(servers: str = "localhost:9092", *topics: str) -> None:
    consumer = AIOKafkaConsumer(
        *(topics or ("contribute", "rejected")),
        bootstrap_servers=servers,
        group_id="examples-python",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        async for record in consumer:
            trace = json.loads(record.value)
            score = json.loads(last_header(record.headers, "kp-score"))
            print(trace["id"], score["score"], score["nearest"], flush=True)


with suppress(KeyboardInterrupt):
    asyncio.run(main(*sys.argv[1:]))
