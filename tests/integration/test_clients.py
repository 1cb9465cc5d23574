"""What other clients write is scored, and what no client should write stops nothing."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections import Counter
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from confluent_kafka import Producer

from support import batches
from support import metrics_page as page
from support.java_kafka import JavaKafka
from support.processes import peak_rss
from support.streams import READY_LIMIT, headers_of, source_of

pytestmark = pytest.mark.integration

CODECS = ("gzip", "snappy", "lz4", "zstd")
MiB = 2**20
JAVA_PRODUCER = Path(batches.__file__).with_name("Produce.java")
CONTENT = "confidential"


def by_librdkafka(stream, codec, lines):
    producer = Producer(
        {
            "bootstrap.servers": stream.settings.kafka.bootstrap_servers,
            "compression.codec": codec,
            "linger.ms": 100,
        }
    )
    for line in lines:
        producer.produce(stream.settings.topics.raw, line)
    assert producer.flush(60) == 0


async def by_aiokafka(stream, codec, lines):
    producer = AIOKafkaProducer(
        bootstrap_servers=stream.settings.kafka.bootstrap_servers,
        compression_type=codec,
        linger_ms=100,
        max_batch_size=MiB,
    )
    async with producer:
        await asyncio.gather(*[await producer.send(stream.settings.topics.raw, line) for line in lines])


async def by_java(stream, values):
    """Publish values, each with its codec, in one run of Java: its start takes seconds."""
    kafka = JavaKafka.find(print)
    process = await asyncio.create_subprocess_exec(
        *(kafka.java, "-Xmx256m", "-cp", f"{kafka.jars}/*", str(JAVA_PRODUCER)),
        *(stream.settings.kafka.bootstrap_servers, stream.settings.topics.raw),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate(
        b"".join(b"%s %s\n" % (codec.encode(), line) for codec, line in values)
    )
    assert process.returncode == 0, f"it takes a JDK: {said.decode()}"


async def test_every_codec_of_every_client_is_read(make_stream, real_traces):
    stream = await make_stream(1)
    lines = iter(real_traces)
    for codec in CODECS:
        await by_aiokafka(stream, codec, [next(lines) for _ in range(5)])
        await asyncio.to_thread(by_librdkafka, stream, codec, [next(lines) for _ in range(5)])
    await by_java(stream, [(codec, next(lines)) for codec in CODECS for _ in range(5)])
    raw = await stream.read(stream.settings.topics.raw)
    assert len(raw) == 15 * len(CODECS)

    outputs = await stream.scored(raw)

    assert Counter(map(source_of, outputs)) == Counter((0, record.offset) for record in raw)
    assert {record.topic for record in outputs} <= {
        stream.settings.topics.contribute,
        stream.settings.topics.rejected,
    }


async def test_workers_know_that_what_ends_transactions_is_no_lag(make_stream, real_traces):
    """Tools take it for one: the group's position is behind the last record (docs/operators/scaling.md)."""
    stream = await make_stream(1)
    kafka, raw = stream.settings.kafka, stream.settings.topics.raw
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=raw) as producer:
        for end in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            for line in real_traces[:3]:
                await producer.send(raw, line)
            await end()
    async with stream.worker() as worker:
        await worker.published(3)
        async with asyncio.timeout(READY_LIMIT):
            while await lags(worker) != [0]:
                await asyncio.sleep(0.1)
        aborted, markers = 3, 2
        async with AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as consumer:
            (end,) = (await consumer.end_offsets([TopicPartition(raw, 0)])).values()

        assert end - (await stream.committed())[0] == aborted + markers


async def lags(worker):
    return [sample.value for sample in page.samples(await worker.metrics(), "kp_consumer_lag_records")]


async def test_batches_that_no_client_should_write_become_dead_letters(make_stream, real_traces):
    stream = await make_stream(1)
    topics = stream.settings.topics
    name, good = f"{CONTENT}\N{SNOWMAN}".encode("utf-16"), real_traces[0]
    headers = [(b"fine", b"1"), (name, CONTENT.encode()), (b"\xff", None)]
    async with AIOKafkaProducer(bootstrap_servers=stream.settings.kafka.bootstrap_servers) as producer:
        places = [
            # A header name that is not UTF-8, plain and compressed, among records that are whole.
            await batches.send(
                producer,
                topics.raw,
                batches.by_hand(
                    [(0, b"a", good, []), (1, b"key", good, headers), (2, b"c", good, [])], codec
                ),
                records=3,
            )
            for codec in (0, 4)
        ]
        for refused in (
            batches.by_hand([(0, b"k", good, [])], 5, compressed=b"?"),
            batches.by_hand([(0, b"k", good, [])], 4, compressed=b"no zstd"),
            batches.by_hand([(0, b"\0\0\0\0", b"\0" * 6, [])], attributes=0x30),
        ):
            with pytest.raises(KafkaError):
                await batches.send(producer, topics.raw, refused, records=1)
        # Offsets that are not their batch's: the broker takes them.
        disordered = batches.by_hand([(0, b"k", good, []), (0, b"k", good, []), (7, b"k", good, [])])
        places.append(await batches.send(producer, topics.raw, disordered, records=3))
        await producer.send_and_wait(topics.raw, good)
    end = places[-1] + 4

    async with stream.worker() as worker:
        await worker.published(end)
        assert await worker.stop() == 0
        log = worker.log()

    outputs = await stream.all_outputs()
    assert Counter(source_of(record)[1] for record in outputs) == Counter(range(end))
    dead = {source_of(record)[1]: record for record in outputs if record.topic == topics.dead_letter}
    reasons = {offset: headers_of(record)["kp-reason"] for offset, record in dead.items()}
    assert reasons == {
        places[0] + 1: "invalid_headers",
        places[1] + 1: "invalid_headers",
        places[2] + 1: "undecodable",
        places[2] + 2: "undecodable",
    }
    letter = dead[places[1] + 1]
    assert (letter.key, letter.value) == (b"key", good)
    kept = json.loads(headers_of(letter)["kp-headers"])
    assert [(b64decode(name), value and b64decode(value)) for name, value in kept] == headers
    assert CONTENT not in log
    assert repr(name)[2:-1] not in log


async def test_a_bomb_is_a_dead_letter_and_memory_stays_bounded(make_stream, real_traces):
    stream = await make_stream(1, limits={"batch_bytes": 16 * MiB})
    topics = stream.settings.topics
    bomb = batches.by_hand([(0, b"k", None, [])], 4, compressed=batches.blanks(500 * MiB))
    async with AIOKafkaProducer(bootstrap_servers=stream.settings.kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topics.raw, real_traces[0])
        async with stream.worker() as worker:
            await worker.published(1)
            processes = psutil.Process(worker.process.pid).children(recursive=True)
            before = max(process.memory_info().rss for process in processes)
            for _ in range(4):
                await batches.send(producer, topics.raw, bomb, records=1)
            await producer.send_and_wait(topics.raw, real_traces[1])
            await worker.published(6)
            peak = max(peak_rss(process.pid) for process in processes)
            assert await worker.stop() == 0

    outputs = await stream.all_outputs()
    reasons = {source_of(record)[1]: headers_of(record).get("kp-reason") for record in outputs}
    assert reasons == {0: None, 1: "too_large", 2: "too_large", 3: "too_large", 4: "too_large", 5: None}
    assert peak - before < 100 * MiB
