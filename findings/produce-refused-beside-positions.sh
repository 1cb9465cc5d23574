#!/usr/bin/env bash
# Expected: within a transaction, records and the group's positions may be sent at the same time; it costs no time.
# Seen: brokers since 3.6 verify one request of a transaction after the other (KIP-890). A client of the first version of
#   transactions gets NOT_ENOUGH_REPLICAS for some of its records, although no replica is missing, and sends them again after a pause.
# Versions: aiokafka 0.14.0, broker 4.4.0, 2026-11-28
# So: the worker sends the positions of a transaction once its records are written (knowledgepulse_kafka/producer.py).
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
packages aiokafka==0.14.0

cat >commit.py <<'PY'
"""Commit a record and a position in each of 200 transactions, and say whether the broker refused records at first."""

import asyncio
import logging
import sys

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


class Refusals(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.number += "retrying. Error: <class 'aiokafka.errors.NotEnoughReplicasError'>" in record.getMessage()


async def commit(bootstrap: str, how: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=how) as producer:
        for _ in range(200):
            async with producer.transaction():
                record = await producer.send("results", b"value", partition=0)
                if how == "after":
                    await record
                await producer.send_offsets_to_transaction({TopicPartition("results", 0): 1}, "group")


async def main(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("results", 1, 1)])
    await admin.close()
    for how in ("beside", "after"):
        refusals = Refusals()
        logging.getLogger("aiokafka").addHandler(refusals)
        await commit(bootstrap, how)
        print(f"positions {how} the records: {'some' if refusals.number else 'none'} refused")


asyncio.run(main(sys.argv[1]))
PY
venv/bin/python commit.py "$bootstrap" 2>commit.log | tee output
diff - output <<'SEEN'
positions beside the records: some refused
positions after the records: none refused
SEEN
