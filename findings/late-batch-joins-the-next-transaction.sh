#!/usr/bin/env bash
# Expected: with transaction.version=2, the default of Kafka 4, a batch of an aborted transaction that arrives late is refused (KIP-890).
# Seen: the brokers raise the epoch for clients of the newer protocol alone. With aiokafka it stays, so a batch that was on its way when its
#   transaction was aborted becomes a part of the next one, and is committed with it, if its number is the next and nothing was written before.
# Versions: aiokafka 0.14.0, broker 4.4.0, 2026-11-28
# So: a producer starts again, under the next epoch, after a transaction with a batch that no broker has answered (knowledgepulse_kafka/transactional_publisher.py).
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
packages aiokafka==0.14.0

cat >late.py <<'PY'
"""Abort a transaction while one of its batches is on its way, which arrives in the next transaction, and read what is committed."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code
from aiokafka.protocol.produce import ProduceRequest

AT = TopicPartition("results", 0)


class Slow(AIOKafkaProducer):
    """A producer, one batch of which stays in the network."""

    def on_its_way(self, value: bytes) -> ProduceRequest:
        batch, transactions = self.create_batch(), self._txn_manager
        batch.append(key=None, value=value, timestamp=None)
        number = transactions.sequence_number(AT)
        batch._set_producer_state(transactions.producer_id, transactions.producer_epoch, number)
        transactions.increment_sequence_number(AT, 1)
        topics = [(AT.topic, [(AT.partition, batch._build())])]
        return ProduceRequest(
            transactional_id=transactions.transactional_id, required_acks=-1, timeout=10_000, topics=topics
        )

    async def add(self) -> None:
        """Let the coordinator add the partition to the transaction."""
        self._txn_manager.maybe_add_partition_to_txn(AT)
        while AT in self._txn_manager.partitions_to_add():
            await asyncio.sleep(0.01)

    async def arrives(self, request: ProduceRequest) -> str:
        while True:
            answer = await self.client.send(self.client.cluster.leader_for_partition(AT), request)
            error = for_code(answer.topics[0][1][0][1])
            if not error.retriable:
                return error.__name__


async def committed(bootstrap: str) -> list[str]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([AT])
        await consumer.seek_to_beginning(AT)
        end = (await consumer.end_offsets([AT]))[AT]
        values = []
        while await consumer.position(AT) < end:
            values += [record.value.decode() for record in (await consumer.getmany(timeout_ms=100)).get(AT, [])]
        return values


async def main(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(AT.topic, 1, 1)])
    await admin.close()
    async with Slow(bootstrap_servers=bootstrap, transactional_id="results") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(AT.topic, b"aborted", partition=0)
        batch = producer.on_its_way(b"late")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.add()
        print("the late batch:", await producer.arrives(batch))
        await producer.send_and_wait(AT.topic, b"next", partition=0)
        await producer.commit_transaction()
        print("the epoch:", producer._txn_manager.producer_epoch)
    print("committed:", *await committed(bootstrap))


asyncio.run(main(sys.argv[1]))
PY
venv/bin/python late.py "$bootstrap" | tee output
diff - output <<'SEEN'
the late batch: NoError
the epoch: 0
committed: late next
SEEN
