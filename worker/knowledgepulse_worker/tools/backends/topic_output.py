"""Publish pulled traces to the raw topic, each exactly once.

The number of each page is recorded in another topic, ``<kafka.group>-pulls``, in the transaction with the
page's traces; the key of the record is the id of the pull's state. A page is recorded in the state before it
is published. After a crash, the last number on the topic tells whether the last page in the state counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.rights import READ, WRITE, Right, topic_rights
from knowledgepulse_kafka.session import commit_repeatedly
from knowledgepulse_kafka.topic_limits import TopicLimits
from knowledgepulse_kafka.topic_reader import TopicReader
from knowledgepulse_kafka.topics import COMPACTED
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.tools.backends.pull_output import PageRecorder
from knowledgepulse_worker.tools.backends.pull_state import TOPIC
from knowledgepulse_worker.tools.common.record_key import KeyBy, key_of

_BATCH_BYTES = 1_048_576
"""The size limit of a batch: under a quota, brokers would delay a second one of a transaction."""

RefusalCallback = Callable[[str, str], None]
"""Is told the id of a trace that cannot be published, and why."""


class TopicOutput:
    """The raw topic; see :func:`topic_output`.

    Its mark is the number of the last page.
    """

    def __init__(
        self,
        publisher: TransactionalPublisher,
        limits: TopicLimits,
        raw: str,
        cursor: Callable[[int], OutputRecord],
        mark: int,
        key_by: KeyBy,
        refuse: RefusalCallback,
    ) -> None:
        self.name = topic_name(raw)
        self.mark = mark
        self._publisher, self._limits, self._raw = publisher, limits, raw
        self._cursor, self._key_by, self._refuse = cursor, key_by, refuse

    async def write(self, traces: Sequence[ReasoningTrace], take: PageRecorder) -> None:
        """Record the page, and publish its traces.

        Raises:
            DeliveryError: the brokers did not confirm the transaction; the next pull finds out whether it is
                committed.
        """
        records = []
        for trace in traces:
            value = trace.to_json()
            record = OutputRecord(self._raw, None, NO_TIMESTAMP, key_of(value, self._key_by), value, ())
            if (problem := self._limits.problem_of(record)) is None:
                records.append(record)
            else:
                self._refuse(trace.id, str(problem))
        take(self.mark + 1)
        await commit_repeatedly(self._publisher, [*records, self._cursor(self.mark + 1)], {})
        self.mark += 1


def topic_name(raw: str) -> str:
    """Return the name of the output to a topic."""
    return f"{TOPIC}{raw}"


def pulls_topic_name(group: str) -> str:
    """Return the name of the topic that records which pages of pulls were published."""
    return f"{group}-pulls"


def pull_rights(settings: Settings) -> Iterator[Right]:
    """Yield the rights that ``kp-worker pull --publish`` needs.

    Only the broker can check two more: Create on the topic of pulls, if it is missing, and Write on the
    transactional ids.
    """
    yield from topic_rights(WRITE, settings.topics.raw)
    yield from topic_rights([*READ, "Write"], pulls_topic_name(settings.kafka.group))


@asynccontextmanager
async def topic_output(
    settings: Settings, state_id: str, key_by: KeyBy, refuse: RefusalCallback
) -> AsyncIterator[TopicOutput]:
    """Connect to the raw topic, fence off an earlier pull with the same state, and end its transaction.

    Args:
        settings: the brokers and the topics.
        state_id: the id of the pull's state.
        key_by: the record key: the trace's id, or a field of its metadata.
        refuse: is told each trace that is too large for the topic.

    Raises:
        NoBrokerError: no broker can be reached.
        SecurityError: the brokers reject the login, the certificate or an operation.
        TopicError: the raw topic does not exist.
    """
    config, pulls = settings.kafka.client_config(), pulls_topic_name(settings.kafka.group)
    async with permitted_admin(settings, pull_rights(settings)) as admin:
        await admin.require_existing(settings.topics.raw)
        await admin.create_if_missing(pulls, 1, COMPACTED)
        topics = await admin.required([settings.topics.raw, pulls])
    raw = topics[settings.topics.raw]

    def cursor(mark: int) -> OutputRecord:
        return OutputRecord(pulls, 0, NO_TIMESTAMP, state_id.encode(), str(mark).encode(), ())

    batch_bytes = min(_BATCH_BYTES, raw.max_message_bytes)
    ids = f"{pulls}-"
    async with TransactionalPublisher(
        config, f"{ids}{state_id}", batch_bytes, granted=f"{ids}*"
    ) as publisher:
        async with TopicReader(config, settings.limits.batch_bytes) as reader:
            marks = [
                int(record.value)
                async for record in reader.read(pulls, 0, await reader.bounds(pulls, 0))
                if record.key == state_id.encode()
            ]
        limits = TopicLimits(topics)
        yield TopicOutput(publisher, limits, raw.name, cursor, max(marks, default=0), key_by, refuse)
