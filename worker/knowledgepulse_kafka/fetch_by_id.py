"""Fetch topics by their ids, in sessions with the brokers (KIP-516, KIP-227).

aiokafka fetches by name, so it would read on in a topic that was deleted and created again. And it tells all
positions with each request, and is told of all partitions, whether or not there is anything new.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, ClassVar, TypeAlias

from aiokafka import TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion, UnknownTopicOrPartitionError
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.fetch import FetchRequest, FetchResponse_v7
from aiokafka.protocol.types import Schema, UnsignedVarInt32

from knowledgepulse_kafka.own_request import OwnRequest
from knowledgepulse_kafka.private_parts import FETCH_SETTINGS

_OTHER_TOPIC = (100, 103)
"""The codes of UNKNOWN_TOPIC_ID and INCONSISTENT_TOPIC_ID: the leader does not know a topic of this id."""

RETRY_PAUSE = 0.1
"""Seconds before the same question to a broker that does not know the topic."""

_HEAD = struct.Struct(">iiiibii")
_PARTITION = struct.Struct(">iiqiqiB")
_ANSWER = struct.Struct(">ihi")
_ANSWERED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qqB")
_NUMBER = struct.Struct(">i")
_NONE = -1

Place: TypeAlias = tuple[bytes, int]
"""A topic's id, and a partition's number."""


@dataclass
class _Session:
    """What a broker remembers of a client's fetches.

    Attributes:
        id: its id; 0 until the broker tells one.
        epoch: the number of the next request.
        positions: what the next fetch of each partition is, as the broker knows it.
    """

    id: int = 0
    epoch: int = 0
    positions: dict[Place, tuple[int, int]] = field(default_factory=dict)


class FetchById:
    """Sends a consumer's fetches by id, and hands the answers on as if they had been asked for by name.

    Args:
        send: the client's method that sends a request to a node.
        on_answer: called with the partitions that a broker has answered for, even if it has nothing new.

    Attributes:
        ids: the ids of the topics that are fetched by id, by name.
        names_only: the nodes that fetch by names only (before Kafka 3.1).
        has_lost_topic: whether a leader does not know an id, since the ids were set.
    """

    def __init__(
        self,
        send: Callable[..., Awaitable[Any]],
        on_answer: Callable[[Iterable[TopicPartition]], None] = lambda _: None,
    ) -> None:
        self.ids: Mapping[str, bytes] = {}
        self.names_only: set[int] = set()
        self.has_lost_topic = False
        self._send = send
        self._on_answer = on_answer
        self._sessions: dict[int, _Session] = {}

    def read(self, topic: str, topic_id: bytes) -> None:
        """Fetch a topic by this id from now on, or by its name if the id is empty."""
        self.ids = {topic: topic_id} if topic_id else {}
        self.has_lost_topic = False

    async def send(self, node: int, request: Any, **options: Any) -> Any:
        """Send a request; a fetch by id if all its topics have one."""
        if not isinstance(request, FetchRequest):
            return await self._send(node, request, **options)
        ids = self.ids
        if node in self.names_only or not all(topic in ids for topic, _ in request.topics):
            response = await self._send(node, request, **options)
        else:
            response = await self._fetch(node, request, ids, options)
        if self.ids is not ids:  # it may be of the topics as they were before
            response.topics = []
        return response

    async def _fetch(
        self, node: int, request: FetchRequest, ids: Mapping[str, bytes], options: Mapping[str, Any]
    ) -> Any:
        session = self._sessions.pop(node, None) or _Session()
        try:
            response = await self._send(node, _request(request, ids, session), **options)
        except IncompatibleBrokerVersion:
            self.names_only.add(node)
            return await self._send(node, request, **options)
        if response.error_code:  # the broker has forgotten the session, and the next request begins another
            return response
        if response.session_id:  # otherwise, the broker has no room for another one
            self._sessions[node] = _Session(response.session_id, session.epoch + 1, session.positions)
        self._on_answer(
            TopicPartition(topic, number) for topic, parts in request.topics for number, *_ in parts
        )
        if any(
            part[1] == UnknownTopicOrPartitionError.errno for _, parts in response.topics for part in parts
        ):
            self.has_lost_topic = self.ids is ids
            await asyncio.sleep(RETRY_PAUSE)
        return response


def _request(request: FetchRequest, ids: Mapping[str, bytes], session: _Session) -> _FetchRequest:
    """Return a request for what has changed since the last one of a session, which takes note of it."""
    wanted = {
        (ids[topic], number): (offset, size)
        for topic, partitions in request.topics
        for number, offset, size in partitions
    }
    known = session.positions
    changed = (
        wanted if not session.id else {at: next_ for at, next_ in wanted.items() if known.get(at) != next_}
    )
    forgotten = [at for at in known if at not in wanted] if session.id else []
    session.positions = wanted
    return _FetchRequest(
        request, changed, forgotten, session, {topic_id: name for name, topic_id in ids.items()}
    )


def _by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, number in places:
        found.setdefault(topic_id, []).append(number)
    return found


def _length(count: int) -> bytes:
    """Return the length of a compact array or text."""
    encoded: bytes = UnsignedVarInt32.encode(count + 1)
    return encoded


class _FetchRequest(OwnRequest, RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    NEEDS = "fetches by topic id need Kafka 3.1 or later"
    API_KEY = 1
    API_VERSION = 13
    FLEXIBLE_VERSION: ClassVar[bool] = True
    RESPONSE_TYPE = FetchResponse_v7
    SCHEMA = Schema()

    def __init__(
        self,
        request: FetchRequest,
        changed: Mapping[Place, tuple[int, int]],
        forgotten: Iterable[Place],
        session: _Session,
        names: Mapping[bytes, str],
    ) -> None:
        super().__init__()
        self._request = request
        self._changed = changed
        self._forgotten = forgotten
        self._session = session
        self.RESPONSE_TYPE = _Reader(names)

    def encode(self) -> bytes:
        max_wait, min_bytes, max_bytes, isolation = (part.of(self._request) for part in FETCH_SETTINGS)
        parts = [
            _HEAD.pack(
                _NONE, max_wait, min_bytes, max_bytes, isolation, self._session.id, self._session.epoch
            )
        ]
        by_topic = _by_topic(self._changed)
        parts.append(_length(len(by_topic)))
        for topic_id, numbers in by_topic.items():
            parts += topic_id, _length(len(numbers))
            for number in numbers:
                offset, size = self._changed[topic_id, number]
                parts.append(_PARTITION.pack(number, _NONE, offset, _NONE, _NONE, size, 0))
            parts.append(b"\0")
        left = _by_topic(self._forgotten)
        parts.append(_length(len(left)))
        for topic_id, numbers in left.items():
            parts += topic_id, _length(len(numbers)), *map(_NUMBER.pack, numbers), b"\0"
        return b"".join([*parts, _length(0), b"\0"])  # the client's rack, and no tagged fields


class _Reader:
    """Reads a response to a fetch by ids.

    Args:
        names: the topics' names by id.
    """

    def __init__(self, names: Mapping[bytes, str]) -> None:
        self._names = names

    def decode(self, data: BytesIO) -> FetchResponse_v7:
        """Return a response by names, in the form of a version that aiokafka reads.

        A topic that the broker does not know by its id has the error of one that does not exist.
        """
        throttle, error, session = _ANSWER.unpack(data.read(_ANSWER.size))
        topics = []
        for _ in range(_read_length(data)):
            name = self._names[data.read(16)]
            topics.append((name, [_read_partition(data) for _ in range(_read_length(data))]))
            _skip_tags(data)
        return FetchResponse_v7(throttle, error, session, topics)


def _read_length(data: BytesIO) -> int:
    """Read the length of a compact array or text; 0 for null, too."""
    length: int = UnsignedVarInt32.decode(data)
    return max(0, length - 1)


def _read_partition(data: BytesIO) -> tuple[int, int, int, int, int, list[tuple[int, int]], bytes]:
    number, error, high, stable, begin = _ANSWERED.unpack(data.read(_ANSWERED.size))
    aborted = [_ABORTED.unpack(data.read(_ABORTED.size))[:2] for _ in range(_read_length(data))]
    data.read(_NUMBER.size)  # the replica that the leader would prefer
    records = data.read(_read_length(data))
    _skip_tags(data)
    if error in _OTHER_TOPIC:
        error = UnknownTopicOrPartitionError.errno
    return number, error, high, stable, begin, aborted, records


def _skip_tags(data: BytesIO) -> None:
    for _ in range(UnsignedVarInt32.decode(data)):
        UnsignedVarInt32.decode(data)
        data.seek(UnsignedVarInt32.decode(data), 1)
