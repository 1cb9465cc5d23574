"""The Faust app: one isolated actor for each partition, which does nothing but hand records to a lane."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import faust
from faust.auth import SASLCredentials, SSLCredentials
from faust.tables.manager import TableManager
from faust.types import TP, EventT, Message, StreamT
from faust.types.auth import CredentialsT
from faust.web import Request, Response, View
from faust.web.base import BlueprintManager
from yarl import URL

from worker.embedding.batcher import Batcher
from worker.errors import TopicError, WorkerError
from worker.observe import probes
from worker.observe.metrics import Metrics
from worker.observe.probes import Readiness
from worker.observe.status import DATA_HEADERS, PAGE, PAGE_HEADERS, Status, shows_content
from worker.policy import PolicyInForce
from worker.settings import KafkaSettings, Settings
from worker.stream.consumer import WatermarkConsumer, WatermarkTransport
from worker.stream.lane import LaneServices
from worker.stream.lanes import Lanes
from worker.stream.lease import Lease
from worker.stream.ledger import Changelog
from worker.stream.outputs import Outputs
from worker.stream.publisher import Publisher, ssl_context
from worker.stream.records import Headers, RawRecord
from worker.stream.recovery import LedgerTableManager
from worker.stream.store import LedgerTable, raw_bytes_topic
from worker.stream.topics import Topic
from worker.stream.watchdog import INTERVAL, Watchdog

if TYPE_CHECKING:
    from worker.observe.tracing import Tracing  # OpenTelemetry need not be installed

logger = logging.getLogger(__name__)

# A full buffer blocks the fetching of all partitions. It reports pressure at four fifths, and one fetch must
# fit into the rest.
STREAM_BUFFER = 64
MAX_POLL_RECORDS = 12
# Of a partition at a time; a larger record comes alone (KIP-74). Answers of a megabyte leave holes in the
# heap, and are no faster.
FETCH_BYTES = 131_072
COMMIT_INTERVAL = 1.0


class WorkerApp:
    """The worker, put together.

    Args:
        settings: the effective settings.
        topics: the topics as they are, by name.
        batcher: None where there is no embedder.
        publisher: sends entries and outputs; started.
        lease: renewed while the group knows this worker.
        metrics: told of everything.
        datadir: where Faust may make its folders.
        in_force: the policy that scores are made with.
        on_failure: told when a lane can't go on; the process must then end.
        tracing: makes a span of each record; None where no spans are exported.
    """

    def __init__(
        self,
        settings: Settings,
        topics: dict[str, Topic],
        batcher: Batcher | None,
        publisher: Publisher,
        lease: Lease,
        metrics: Metrics,
        datadir: Path,
        in_force: PolicyInForce,
        on_failure: Callable[[BaseException], None],
        tracing: Tracing | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self._raw = topics[settings.topics.raw]
        self.readiness = Readiness()
        self._owned: set[int] = set()
        self._assigned_at = 0.0
        self.faust = faust.App(settings.kafka.group, **_faust_settings(settings, self._raw, datadir))
        self.table = LedgerTable(self.faust, self._raw.partitions, on_failure)
        self.faust.tables.add(self.table)
        services = LaneServices(
            policy=in_force,
            cache=settings.cache,
            limits=settings.limits,
            batcher=batcher,
            outputs=Outputs(settings.topics, {name: topic.partitions for name, topic in topics.items()}),
            publisher=publisher,
            changelog_topic=self.table.changelog_topic_name,
            metrics=metrics,
            tracing=tracing,
        )
        self.lanes = Lanes(services, self._recovered_changelog, on_failure)
        self.faust.transport = WatermarkTransport(
            self.faust.conf.broker_consumer, self.faust, self.lanes, lease, metrics, self._raw.name
        )
        self.table.on_recover(self._on_recovered)
        self._add_agent()
        self._add_pages()
        metrics.partitions.labels("topic").set(self._raw.partitions)
        self.faust.on_partitions_assigned.connect(self._on_assigned)  # type: ignore[arg-type]  # no keywords there
        metrics.watch(self._observe)

    def _add_agent(self) -> None:
        topic = raw_bytes_topic(self.faust, self._raw.name, self._raw.partitions)

        async def hand_over(stream: StreamT[bytes]) -> None:
            try:
                async for event in stream.events():
                    await self.lanes.take(_record(event))
            except asyncio.CancelledError:
                # Faust would restart a cancelled actor, even for a partition that is gone.
                return

        self.faust.agent(topic, name="hand-over", isolated_partitions=True)(hand_over)

    def _add_pages(self) -> None:
        metrics, web = self.metrics, self.settings.web
        status = Status(metrics, self.settings)

        async def metrics_page(view: View, request: Request) -> Response:
            content_type, body = metrics.render(request.headers.get("Accept", ""))
            return view.bytes(body, headers={"Content-Type": content_type})

        async def status_page(view: View, _request: Request) -> Response:
            return view.bytes(PAGE, headers=dict(PAGE_HEADERS))

        async def status_data(view: View, request: Request) -> Response:
            body = status.to_json(content=shows_content(web, request.url.host))
            return view.bytes(body, headers=dict(DATA_HEADERS))

        async def live_page(view: View, _request: Request) -> Response:
            status, body = probes.live()
            return view.bytes(body, status=status, headers=dict(probes.HEADERS))

        async def ready_page(view: View, _request: Request) -> Response:
            status, body = probes.ready(self.readiness.reasons)
            return view.bytes(body, status=status, headers=dict(probes.HEADERS))

        self.faust.web.blueprints = BlueprintManager()  # none of Faust's own pages
        self.faust.page("/", name="kp-status")(status_page)
        self.faust.page("/api/status", name="kp-status-data")(status_data)
        self.faust.page("/metrics", name="kp-metrics")(metrics_page)
        self.faust.page(probes.LIVE, name="kp-live")(live_page)
        self.faust.page(probes.READY, name="kp-ready")(ready_page)

    def _recovered_changelog(self, partition: int) -> Changelog:
        end = cast("TableManager", self.faust.tables).recovery.active_highwaters.get(
            TP(self.table.changelog_topic_name, partition), -1
        )
        return self.table.changelog(partition, recovered_to=end)

    async def _on_recovered(self) -> None:
        self.lanes.reopen()
        self.readiness.done("ledgers")
        if self._owned:
            logger.info(
                "recovered the ledgers of %d partitions in %.1f s: %d records",
                len(self._owned),
                time.monotonic() - self._assigned_at,
                sum(len(self.table.changelog(number, recovered_to=-1).entries) for number in self._owned),
            )

    async def _on_assigned(self, _app: Any, assigned: set[TP], **_: Any) -> None:
        before, self._owned = self._owned, {tp.partition for tp in assigned if tp.topic == self._raw.name}
        for partition in before - self._owned:
            self.metrics.partition_left(partition)
        self.readiness.done("partitions")
        self._assigned_at = time.monotonic()
        owned = len(self._owned)
        limits = self.settings.limits
        self.metrics.rebalances.inc()
        self.metrics.partitions.labels("owned").set(owned)
        self.metrics.in_flight_limit.set(owned * limits.in_flight_records)
        self.metrics.in_flight_bytes_limit.set(owned * limits.in_flight_bytes)
        logger.info("owns %d of %d partitions of %s", owned, self._raw.partitions, self._raw.name)

    async def watch(self) -> None:
        """Watch over the partitions until one stalls.

        Raises:
            StalledError: it did; a fresh process would go on.
            TopicError: raw is gone, or has another partition count; Faust would wait without a word.
            WorkerError: the client no longer takes part in its group; Faust would go on without.
        """
        limit = self.settings.limits.stall
        stream = Watchdog(limit, "records wait, and none was finished")
        # What a rebalance waits for may be another worker that takes its time.
        recovery = Watchdog(5 * limit, "the recovery of its ledger has come no further")
        while True:
            await asyncio.sleep(INTERVAL)
            self._require_partitions()
            self._require_member()
            recovering = self.faust.in_recovery or self.faust.rebalancing
            stream.check({} if recovering else cast("WatermarkConsumer", self.faust.consumer).waiting())
            remaining = cast("TableManager", self.faust.tables).recovery.active_remaining()
            recovery.check({tp.partition: count for tp, count in remaining.items()} if recovering else {})

    def _require_partitions(self) -> None:
        count = cast("WatermarkConsumer", self.faust.consumer).partition_count()
        if count != self._raw.partitions and not self.readiness.reasons:
            raise TopicError(
                f"{self._raw.name} has {count} partitions now, it had {self._raw.partitions}"
                if count
                else f"{self._raw.name} is no longer there"
            )

    def _require_member(self) -> None:
        failure = cast("WatermarkConsumer", self.faust.consumer).failure()
        if failure is not None:
            raise WorkerError(f"the group {self.settings.kafka.group}: {failure!r}") from failure

    def _observe(self) -> None:
        """Bring the gauges up to date that somebody looks at now."""
        # While a rebalance is under way, consumer and recovery still know what has left.
        for partition, records in cast("WatermarkConsumer", self.faust.consumer).lag().items():
            if partition in self._owned:
                self.metrics.lag(partition, records)
        for tp, remaining in cast("TableManager", self.faust.tables).recovery.active_remaining().items():
            if tp.partition in self._owned:
                self.metrics.recovering(tp.partition, remaining)


def _record(event: EventT[Any]) -> RawRecord:
    message: Message = event.message
    return RawRecord(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        # Faust makes seconds of the milliseconds; a double is exact enough to get them back.
        timestamp_ms=-1 if message.timestamp is None else round(message.timestamp * 1000),
        key=message.key,
        value=message.value,
        # Faust types them without the null values that Kafka and its client have.
        headers=tuple(cast("Headers", message.headers) or ()),
    )


def heartbeat_interval(kafka: KafkaSettings) -> float:
    """Return the seconds between two signs of life to the group."""
    return kafka.session_timeout / 4


def _faust_settings(settings: Settings, raw: Topic, datadir: Path) -> dict[str, Any]:
    kafka = settings.kafka
    return {
        "broker": [URL(f"kafka://{server.strip()}") for server in kafka.bootstrap_servers.split(",")],
        "broker_credentials": _credentials(kafka),
        "broker_session_timeout": kafka.session_timeout,
        "broker_heartbeat_interval": heartbeat_interval(kafka),
        "broker_request_timeout": max(90.0, kafka.session_timeout),
        "broker_commit_interval": COMMIT_INTERVAL,
        "broker_max_poll_records": MAX_POLL_RECORDS,
        "consumer_max_fetch_size": FETCH_BYTES,
        "stream_buffer_maxsize": STREAM_BUFFER,
        "stream_wait_empty": False,
        "store": "memory://",
        "TableManager": LedgerTableManager,
        "table_standby_replicas": 0,
        "topic_disable_leader": True,
        "topic_allow_declare": False,
        "topic_partitions": raw.partitions,
        "autodiscover": False,
        "datadir": datadir,
        "web_host": settings.web.host,
        "web_bind": settings.web.host,
        "web_port": settings.web.port,
    }


def _credentials(kafka: KafkaSettings) -> CredentialsT | None:
    if kafka.security_protocol == "PLAINTEXT":
        return None
    context = ssl_context(kafka) if kafka.security_protocol.endswith("SSL") else None
    if kafka.security_protocol == "SSL":
        return SSLCredentials(context)
    return SASLCredentials(
        mechanism=kafka.sasl_mechanism,
        username=kafka.sasl_username,
        password=kafka.sasl_password.get_secret_value() if kafka.sasl_password else None,
        ssl_context=context,
    )
