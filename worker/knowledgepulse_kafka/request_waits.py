"""What a client waits for: its requests without an answer, and the errors that brokers gave last.

aiokafka asks again after most errors, without end and without a word.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaConnectionError, UnknownError, for_code
from aiokafka.protocol.types import Array, Schema

from knowledgepulse_kafka.broker_requests import name_of
from knowledgepulse_kafka.private_parts import CONNECT, KNOWN_TOPICS
from knowledgepulse_kafka.reaching import address, failed_since
from knowledgepulse_kafka.request_hook import RequestSender, changing, plain_client
from knowledgepulse_kafka.wait import CONNECTION, Wait

TRANSACTION = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "Produce",
    "EndTxn",
)
"""The requests of a transaction."""
MEMBERSHIP = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch")
"""The requests of a group member to its coordinator."""
READING = ("Fetch", "ListOffsets")
"""The requests to the leaders of the partitions that are read."""
LOOK_UPS = ("FindCoordinator", "Metadata")
"""The requests that find the broker for another one."""

_NOTED = {*TRANSACTION, *MEMBERSHIP, *READING, *LOOK_UPS}

# Codes that aiokafka does not know.
_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    49: "INVALID_PRODUCER_ID_MAPPING",
    81: "GROUP_MAX_SIZE_REACHED",
    87: "INVALID_RECORD",
    88: "UNSTABLE_OFFSET_COMMIT",
    90: "PRODUCER_FENCED",
}

# The former transaction is not complete, whatever the partition: CONCURRENT_TRANSACTIONS.
_CODES_OF_ALL = (51,)

# No causes: a group member is told to join again, or to join under the id that it was given; a partition was
# not added to a transaction, because of another one (OPERATION_NOT_ATTEMPTED).
_HARMLESS_CODES = (27, 79, 55)

# The brokers have aborted the transaction, perhaps because of what the client waited for before, which then
# tells more: INVALID_PRODUCER_EPOCH, PRODUCER_FENCED.
_AFTER_ABORT = (47, 90)

# What a broker does instead of an answer, such as to a request larger than its socket.request.max.bytes.
_CLOSED = "closes the connection"

# Seconds for which an error is remembered; the client asks again more often.
_ERROR_LIMIT = 20.0
# Seconds after which a request that has no answer is waited for.
_PATIENCE_LIMIT = 2.0
# Requests that brokers answer only after a while, if there is nothing to tell.
_LONG_REQUESTS = ("JoinGroup", "SyncGroup")

_Client = TypeVar("_Client")


class _Place(NamedTuple):
    request: str
    place: str


class Waits:
    """The waits of a client.

    Args:
        clock: returns seconds.
        explain: returns why a server cannot be reached, given its address and the error.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        explain: Callable[[str, Exception], str] = lambda _, error: str(error),
    ) -> None:
        self.explain = explain
        self._clock = clock
        self._pending: dict[int, tuple[_Place, float]] = {}
        self._unanswered: dict[_Place, tuple[float, float]] = {}
        self._errors: dict[_Place, tuple[float, Wait]] = {}
        self._count = 0

    def current(self, requests: Collection[str]) -> list[Wait]:
        """Return what is waited for by one of these requests, and by a look-up for them.

        The newest error counts, as the client asks again and again; without one, the oldest request.
        """
        errors = [self._newest(requests), self._newest((*LOOK_UPS, CONNECTION))]
        return [wait for wait in errors if wait is not None] or self._overdue((*requests, *LOOK_UPS))

    def _newest(self, requests: Collection[str]) -> Wait | None:
        since = self._clock() - _ERROR_LIMIT
        errors = [
            (at, wait)
            for place, (at, wait) in self._errors.items()
            if place.request in requests and at > since
        ]
        return max(errors, key=lambda error: error[0])[1] if errors else None

    def _overdue(self, requests: Collection[str]) -> list[Wait]:
        now = self._clock()
        pending = [(at, place) for place, at in self._pending.values() if place.request in requests]
        at, oldest = min(pending, default=(now, None))
        patience = (
            10 * _PATIENCE_LIMIT
            if oldest is not None and oldest.request in _LONG_REQUESTS
            else _PATIENCE_LIMIT
        )
        if oldest is None or now - at < patience:
            return []
        return [Wait(*oldest, problem=f"no answer for {now - at:.0f} s")]

    # --- what the connections tell

    def begin(self, request: str, broker: str) -> int:
        """Note a request to a broker; return its number.

        One that is sent again because it had no answer has been waited for since it was sent first.
        """
        self._count += 1
        place, now = _Place(request, broker), self._clock()
        first, given_up = self._unanswered.pop(place, (now, now))
        self._pending[self._count] = place, first if now - given_up < _PATIENCE_LIMIT else now
        return self._count

    def end(
        self, number: int, response: Any, topics: Collection[str] = (), *, was_closed: bool = False
    ) -> None:
        """Note the answer to a request; None if there was none.

        Args:
            number: the request's number.
            response: the answer.
            topics: the topics that count; all if there are none.
            was_closed: whether the connection was closed instead of an answer.
        """
        asked, began = self._pending.pop(number)
        if response is None:
            self._unanswered[asked] = began, self._clock()
            if was_closed:
                self._errors[asked] = self._clock(), Wait(*asked, problem=_CLOSED)
            return
        self._errors.pop(asked, None)
        request, broker = asked
        for topic, partition, code in error_codes(response):
            if not code and not self._errors:  # as nearly always, of each of thousands of partitions
                continue
            if topic and topics and topic not in topics:
                continue
            if code in _AFTER_ABORT and self._newest(TRANSACTION) is not None:
                continue
            place = _Place(
                request, f"{topic}/{partition}" if partition >= 0 and code not in _CODES_OF_ALL else broker
            )
            if code and code not in _HARMLESS_CODES:
                self._errors[place] = self._clock(), Wait(*place, error=error_name(code))
            else:
                self._errors.pop(place, None)

    def held_back(self, topic: str, partition: int, offsets: int) -> None:
        """Note that an open transaction holds back the last offsets of a partition."""
        place = f"{topic}/{partition}"
        problem = f"an open transaction holds back {offsets} offsets"
        # Fetches are answered without an error meanwhile.
        self._errors[_Place("Fetch", f"{place} held back")] = self._clock(), Wait("Fetch", place, "", problem)

    def unreachable(self, broker: str, problem: str, group: int = ConnectionGroup.DEFAULT) -> None:
        """Note that there is no connection to a broker.

        Args:
            broker: the broker's address.
            problem: why there is none.
            group: what the connection is for: a client has several to a broker.
        """
        self._errors = {  # a broker that ends closes all
            place: told
            for place, told in self._errors.items()
            if place.place != broker or told[1].problem != _CLOSED
        }
        self._errors[_connection(broker, group)] = self._clock(), Wait(CONNECTION, broker, problem=problem)

    def reached(self, broker: str, group: int = ConnectionGroup.DEFAULT) -> None:
        """Note that there is a connection to a broker, for what the group says."""
        self._errors.pop(_connection(broker, group), None)


def _connection(broker: str, group: int) -> _Place:
    return _Place(CONNECTION, f"{broker} {group}")


def error_name(code: int) -> str:
    """Return the name of an error with its code."""
    known = for_code(code)
    name = _NAMES.get(code, "an error" if known is UnknownError else known.message)
    return f"{name} ({code})"


GROUP_IS_FULL = error_name(81)
"""The error of a group with as many members as ``group.max.size`` of the brokers allows."""


def error_codes(response: Any) -> Iterator[tuple[str, int, int]]:
    """Yield topic, partition and error code of each part of a response; empty and -1 where it has none."""
    yield from _codes(response.SCHEMA, [*map(response.get_item, response.SCHEMA.names)], "", -1)


class _Layout(NamedTuple):
    """Where the parts of a response have what tells of errors.

    Attributes:
        topics: the numbers of the members that may be a topic's name.
        partition: that of a partition's number; None if there is none.
        code: that of an error code; None if there is none.
        arrays: those of arrays of parts, with the schemas of these.
    """

    topics: tuple[int, ...]
    partition: int | None
    code: int | None
    arrays: tuple[tuple[int, Schema], ...]


@cache
def _layout(schema: Schema) -> _Layout:
    """Return a schema's layout, which is asked for each of thousands of partitions."""
    numbers = {name: number for number, name in enumerate(schema.names)}
    return _Layout(
        tuple(numbers[name] for name in ("topic", "topics") if name in numbers),  # some of Fetch misname it
        numbers.get("partition"),
        numbers.get("error_code"),
        tuple(
            (number, kind.array_of)
            for number, kind in enumerate(schema.fields)
            if isinstance(kind, Array) and isinstance(kind.array_of, Schema)
        ),
    )


def _codes(
    schema: Schema, values: Sequence[Any], topic: str, partition: int
) -> Iterator[tuple[str, int, int]]:
    layout = _layout(schema)
    for number in layout.topics:
        topic = values[number] if isinstance(values[number], str) else topic
    if layout.partition is not None and isinstance(values[layout.partition], int):
        partition = values[layout.partition]
    if layout.code is not None and values[layout.code] is not None:
        yield topic, partition, values[layout.code]
    for number, inner in layout.arrays:
        for item in values[number] or ():
            yield from _codes(inner, item, topic, partition)


def noting(client: _Client, waits: Waits) -> _Client:
    """Return a client of any kind whose waits are noted."""
    plain: Any = plain_client(client)
    CONNECT.replace(plain, partial(_connected, plain, CONNECT.of(plain), waits))
    return changing(client, lambda send: partial(_send, plain, send, waits))


async def _connected(
    client: AIOKafkaClient, connect: Any, waits: Waits, node: Any, *arguments: Any, **options: Any
) -> Any:
    cluster: ClusterMetadata = client.cluster
    broker = cluster.broker_metadata(node)
    connection = await connect(node, *arguments, **options)
    if broker is not None and connection is None:
        server, error = address(broker.host, broker.port), failed_since(broker.host, broker.port)
        problem = waits.explain(server, error) if error is not None else "none"
        waits.unreachable(server, problem, options.get("group", ConnectionGroup.DEFAULT))
    elif broker is not None:
        waits.reached(address(broker.host, broker.port), options.get("group", ConnectionGroup.DEFAULT))
    return connection


async def _send(
    client: AIOKafkaClient, send: RequestSender, waits: Waits, request: Any, expect_response: bool = True
) -> Any:
    name = name_of(request.API_KEY)
    if name not in _NOTED:
        return await send(request, expect_response=expect_response)
    owner = getattr(send, "__self__", None)
    number, response = waits.begin(name, address(getattr(owner, "host", ""), getattr(owner, "port", 0))), None
    was_closed = False
    try:
        response = await send(request, expect_response=expect_response)
    except KafkaConnectionError:
        was_closed = True
        raise
    finally:
        # Metadata tells of all topics. A transaction's positions are in one that the producer does not know.
        known = KNOWN_TOPICS.of(client) if name == "Metadata" else ()
        waits.end(number, response, known, was_closed=was_closed)
    return response
