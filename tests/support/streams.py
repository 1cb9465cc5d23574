"""Isolated streams for tests: topics on a real broker, and real worker processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka.group_member import GroupMember
from knowledgepulse_worker.kafka.topic_admin import TopicAdmin
from knowledgepulse_worker.policy import ROUTES
from knowledgepulse_worker.settings import Settings, render
from knowledgepulse_worker.tools.demo.processes import free_ports
from support import metrics_page as page

TESTS = Path(__file__).parents[1]
READY_LIMIT = 120
ARRIVAL_LIMIT = 120


@dataclass(frozen=True)
class Message:
    """A message to publish."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


class Worker:
    """A `kp-worker run` process."""

    def __init__(
        self, process: asyncio.subprocess.Process, settings: Settings, config: Path, log: Path
    ) -> None:
        self.process = process
        self.settings = settings
        self.config = config
        self.url = f"http://{settings.web.host}:{settings.web.port}"
        self._log = log

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.url + path, headers=headers) as response,
        ):
            return response.status, await response.text()

    async def metrics(self) -> str:
        """Return the process's metrics page, or an empty text while none is served.

        Wait while the page is the supervisor's own, which may be a second old.
        """
        async with asyncio.timeout(READY_LIMIT):
            while True:
                assert self.process.returncode is None, "the worker ended"
                try:
                    status, text = await self.get("/metrics")
                except aiohttp.ClientConnectionError:
                    return ""
                if status != 200 or text.count("# TYPE ") > 1:  # the supervisor knows only kp_state
                    return text if status == 200 else ""
                await asyncio.sleep(0.1)

    async def shows(self, value: float, name: str, **labels: str) -> None:
        """Wait until a metric has this value: outputs are seen before they are counted."""
        async with asyncio.timeout(READY_LIMIT):
            while page.value(await self.metrics(), name, **labels) != value:
                await asyncio.sleep(0.1)

    async def owns(self, partitions: int) -> None:
        """Wait until it owns this number of partitions."""
        await self.shows(partitions, "kp_partitions", state="owned")

    async def published(self, count: int) -> None:
        """Wait until it has published at least this number of records."""
        now = asyncio.get_running_loop().time
        published, arrived = -1.0, now()
        while published < count:
            await asyncio.sleep(0.05)
            if (counted := page.value(await self.metrics(), "kp_traces_total")) != published:
                published, arrived = counted, now()
            assert now() < arrived + ARRIVAL_LIMIT, f"no more than {published:g} in {ARRIVAL_LIMIT} s"

    async def verdict(self) -> dict[str, Any]:
        """Return the verdict in the response of the readiness probe."""
        return json.loads((await self.get("/readyz"))[1])["verdict"]

    async def says(self, pattern: str) -> None:
        """Wait until the text of the verdict begins so."""
        async with asyncio.timeout(READY_LIMIT):
            while not re.match(pattern, (await self.verdict())["text"]):
                await asyncio.sleep(0.1)

    async def logged(self, text: str) -> None:
        """Wait until its log contains the text."""
        async with asyncio.timeout(READY_LIMIT):
            while text not in self.log():
                assert self.process.returncode is None, "the worker ended"
                await asyncio.sleep(0.05)

    def told_once(self, reason: str) -> bool:
        """Return whether its log has a verdict for a reason, and none that follows another one for it.

        On a busy machine, a worker may wait for brokers again.
        """
        lines = map(json.loads, self.log().splitlines())
        told = [reason in line["message"] for line in lines if line["logger"].endswith(".diagnosis")]
        return any(told) and (True, True) not in pairwise(told)

    async def stop(self) -> int:
        """Stop it with SIGTERM, as an orchestrator does; return the exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(120):
                return await self.process.wait()
        except TimeoutError:
            raise AssertionError("it did not stop") from None

    async def kill(self) -> None:
        """Kill parent and child at once, as a power failure would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    def log(self) -> str:
        return self._log.read_text()


_TOPICS = ("raw", *(route.topic for route in ROUTES.values()), "dead_letter")


def own_settings(bootstrap_servers: str, purpose: str, *layers: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Return settings with their own group, topics and port; later layers override earlier ones."""
    name = f"{purpose}-{uuid4().hex[:8]}"
    values: dict[str, dict[str, Any]] = {
        "kafka": {"bootstrap_servers": bootstrap_servers, "group": name},
        "topics": {topic: f"{name}-{topic}" for topic in _TOPICS},
        "web": {"port": free_ports(1)[0]},
    }
    for layer in layers:
        for section, changes in layer.items():
            values[section] = values.get(section, {}) | dict(changes)
    return Settings(**values)


@asynccontextmanager
async def admin_of(bootstrap_servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Yield an admin client of a broker."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def tests_environment() -> dict[str, str]:
    """Return the environment of a process that imports the tests' modules."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path}


class Stream:
    """One test's topics and group, and the records in them."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self._workers = 0

    def configured(self, **sections: Mapping[str, Any]) -> Settings:
        """Return the settings with some values changed."""
        values = self.settings.model_dump()
        for section, changes in sections.items():
            values[section] |= changes
        return Settings(**values)

    async def create_topics(self, partitions: int) -> None:
        async with TopicAdmin(self.settings.kafka, self.settings.topics) as admin:
            await admin.create_missing(partitions, replication_factor=1)

    async def delete_topic(self, name: str) -> None:
        async with TopicAdmin(self.settings.kafka, self.settings.topics) as admin:
            await admin.delete([name])
            while name in await admin.existing():
                pass

    async def recreate_topic(self, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
        """Recreate a topic, as another tool would.

        It keeps records of any age: the broker's retention would delete what a test wrote with a time of
        long ago, at a moment of its own.
        """
        await self.delete_topic(name)
        async with TopicAdmin(self.settings.kafka, self.settings.topics) as admin:
            await admin.create(name, partitions, 1, {"retention.ms": "-1"} | (config or {}))

    async def configure_topic(self, name: str, config: dict[str, str]) -> None:
        """Change a topic's settings, as an operator does."""
        async with admin_of(self.settings.kafka.bootstrap_servers) as admin:
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=config)])

    async def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete a partition's records before an offset, as retention does."""
        async with admin_of(self.settings.kafka.bootstrap_servers) as admin:
            records = {TopicPartition(topic, partition): RecordsToDelete(before_offset=before)}
            await admin.delete_records(records)

    async def write(self, topic: str, value: bytes | None, **options: Any) -> None:
        """Write a record that no worker and no producer of traces wrote."""
        async with AIOKafkaProducer(bootstrap_servers=self.settings.kafka.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, value, **{"partition": 0} | options)

    async def publish(self, messages: Iterable[Message]) -> list[ConsumerRecord]:
        """Publish the messages in order; return the raw topic's records afterwards."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.settings.kafka.bootstrap_servers,
            max_request_size=2**24,
            max_batch_size=2**20,
        )
        async with producer:
            deliveries = []
            for m in messages:
                if m.key is None and m.value is None:  # the client's ordinary send takes no such record
                    batch = producer.create_batch()
                    batch.append(key=None, value=None, timestamp=m.timestamp_ms, headers=m.headers)
                    deliveries.append(
                        await producer.send_batch(batch, self.settings.topics.raw, partition=m.partition or 0)
                    )
                    continue
                deliveries.append(
                    await producer.send(
                        self.settings.topics.raw,
                        m.value,
                        key=m.key,
                        partition=m.partition,
                        timestamp_ms=m.timestamp_ms,
                        headers=m.headers,
                    )
                )
            await asyncio.gather(*deliveries)
        return await self.read(self.settings.topics.raw)

    @asynccontextmanager
    async def worker(
        self,
        settings: Settings | None = None,
        module: str = "knowledgepulse_worker.cli.entry",
        environment: Mapping[str, str] | None = None,
        command: str = "run",
        config_of: Callable[[Settings], str] = render,
    ) -> AsyncIterator[Worker]:
        """Run a worker or a similar command; kill it at the end if the test has not stopped it."""
        self._workers += 1
        effective = settings or self.settings
        effective = effective.model_copy(
            update={"web": effective.web.model_copy(update={"port": free_ports(1)[0]})}
        )
        config = self.folder / f"worker-{self._workers}.toml"
        config.write_text(config_of(effective))
        log = self.folder / f"worker-{self._workers}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *command.split(),
                "--config",
                str(config),
                stdout=output,
                stderr=output,
                env=tests_environment() | dict(environment or {}),
                start_new_session=True,
            )
        worker = Worker(process, effective, config, log)
        try:
            yield worker
        except BaseException as error:  # a failure that only happens elsewhere is explained by this alone
            error.add_note(f"the log of its worker:\n{worker.log()}")
            raise
        finally:
            await worker.kill()

    async def killed(self, *moments: Callable[[Worker], Awaitable[None]], **given: Any) -> int:
        """Start a program once for each moment, and kill it then.

        Args:
            moments: each returns when it has come, or when the program has ended, which is the last start.
            given: how to start the program; see :meth:`worker`.

        Returns:
            The number of kills.
        """
        for kills, moment in enumerate(moments):
            async with self.worker(**given) as program:
                await moment(program)
                if program.process.returncode is not None:
                    return kills
        return len(moments)

    async def scored(
        self, raw: Sequence[ConsumerRecord], settings: Settings | None = None
    ) -> list[ConsumerRecord]:
        """Return the outputs of a worker that runs until every raw record has one, and stops."""
        async with self.worker(settings) as worker:
            outputs = await self.outputs(worker, raw)
            assert await worker.stop() == 0, worker.log()
        return outputs

    async def arrived(self, count: int, *topics: str) -> list[ConsumerRecord]:
        """Wait until the topics have at least this number of records; return them."""
        async with asyncio.timeout(ARRIVAL_LIMIT):
            while len(records := await self.read(*topics)) < count:
                await asyncio.sleep(0.1)
        return records

    async def all_outputs(self) -> list[ConsumerRecord]:
        """Return the records in the output topics."""
        topics = self.settings.topics
        return await self.read(*topics.outputs)

    async def read(self, *topics: str) -> list[ConsumerRecord]:
        """Return all records in the topics, by topic, partition and offset."""
        records: list[ConsumerRecord] = []
        async with self._reading(topics) as (consumer, partitions):
            while not all([await _read_to_end(consumer, tp) for tp in partitions]):
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    records += batch
        return sorted(
            records, key=lambda record: (topics.index(record.topic), record.partition, record.offset)
        )

    @asynccontextmanager
    async def _reading(
        self, topics: Iterable[str]
    ) -> AsyncIterator[tuple[AIOKafkaConsumer, list[TopicPartition]]]:
        """Read the committed records of the topics from their beginning."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.settings.kafka.bootstrap_servers, isolation_level="read_committed"
        )
        async with consumer:
            partitions = [
                TopicPartition(topic, number)
                for topic in topics
                for number in sorted(await _partitions(consumer, topic))
            ]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            yield consumer, partitions

    async def members(self) -> list[Any]:
        """Return the members of the workers' group, as its coordinator knows them."""
        async with admin_of(self.settings.kafka.bootstrap_servers) as admin:
            (response,) = await admin.describe_consumer_groups([self.settings.kafka.group])
        ((*_, members, _operations),) = response.groups
        return list(members)

    async def left(self) -> None:
        """Wait until the group has no member: a busy worker may end before its coordinator knows."""
        async with asyncio.timeout(ARRIVAL_LIMIT):
            while await self.members():
                await asyncio.sleep(0.1)

    async def committed(self) -> dict[int, int]:
        """Return the group's committed offset in each raw partition that has one.

        Markers of a transaction come after its commit, and until then its offsets are not told.
        """
        raw = self.settings.topics.raw
        async with GroupMember(self.settings.kafka.client_config(), 10**6, rebalance_timeout=10) as member:
            places = [TopicPartition(raw, number) for number in await _partitions(member, raw)]
            found = await member.committed(places)
        return {at.partition: position.offset for at, position in found.items()}

    async def outputs(self, worker: Worker, raw: Iterable[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records in the output topics, once every raw record has an output."""
        missing = {(record.partition, record.offset) for record in raw}
        topics = self.settings.topics
        outputs = topics.outputs
        now = asyncio.get_running_loop().time
        arrived = now()
        async with self._reading(outputs) as (consumer, _):
            while missing and worker.process.returncode is None:
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    missing -= {source_of(record) for record in batch}
                    arrived = now()
                in_time = now() < arrived + ARRIVAL_LIMIT
                assert in_time, f"none arrived for {ARRIVAL_LIMIT} s, missing: {sorted(missing)}"
        found = await self.all_outputs()
        missing -= {source_of(record) for record in found}
        assert not missing, "the worker ended"
        return found


async def ended(program: Worker) -> None:
    """Return when a program has ended by itself, as it should."""
    assert await program.process.wait() == 0, program.log()


async def _read_to_end(consumer: AIOKafkaConsumer, tp: TopicPartition) -> bool:
    """Tell whether a partition is read to its log's end: a transaction's marker comes after its commit."""
    end = consumer.highwater(tp)
    return end is not None and await consumer.position(tp) >= end


async def _partitions(consumer: AIOKafkaConsumer, topic: str) -> set[int]:
    """Return a topic's partitions, once the broker that is asked knows it: a new one comes to it later."""
    consumer._client.add_topic(topic)
    async with asyncio.timeout(ARRIVAL_LIMIT):
        while not (partitions := consumer.partitions_for_topic(topic)):
            await consumer._client.force_metadata_update()
    return set(partitions)


def headers_of(record: ConsumerRecord) -> dict[str, str]:
    """Return a record's headers by name, as text; of duplicates, return the last."""
    return {name: (value or b"").decode(errors="backslashreplace") for name, value in record.headers}


def source_of(record: ConsumerRecord) -> tuple[int, int]:
    """Return the partition and offset of an output's raw record."""
    headers = headers_of(record)
    # A producer may use these names itself; the worker's own headers come last.
    if "kp-policy" in [name for name, _ in record.headers[-2:]]:
        _, partition, offset = headers["kp-source"].rsplit("/", 2)
        return int(partition), int(offset)
    return int(headers["__streams.errors.partition"]), int(headers["__streams.errors.offset"])


def score_of(record: ConsumerRecord) -> dict[str, Any]:
    """Return an output's kp-score."""
    return json.loads(headers_of(record)["kp-score"])
