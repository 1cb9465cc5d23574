"""The network between processes and brokers: latency, cuts, dead brokers, lost answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from random import Random
from typing import Any, TypeAlias

from aiokafka.errors import KafkaConnectionError, RequestTimedOutError

from knowledgepulse_kafka.testing.virtual_time import OWNER

Reply: TypeAlias = Callable[[Any], None]
"""Answers a request, with a result or with an exception."""

Operation: TypeAlias = Callable[[Reply], None]
"""What a broker does at a request."""

_Line: TypeAlias = tuple[str, str, int]
_RETRANSMISSION = 0.2
_NOBODY = Context()


class Network:
    """Carries requests and answers, in order on each connection.

    As with TCP, data that is sent during a cut arrives after the cut, unless the sender has given up by then.
    The death of a broker breaks its connections.

    Attributes:
        cut: pairs of a process's host and a broker that cannot reach each other.
        down: dead brokers.
        deaf: pairs whose requests arrive but whose connection breaks before the answer.
        latencies: the seconds that a request or an answer takes, by chance.
        slow: the seconds that are added to the latency of a broker.
    """

    def __init__(self, random: Random, loop: asyncio.AbstractEventLoop) -> None:
        self.cut: set[tuple[str, int]] = set()
        self.deaf: set[tuple[str, int]] = set()
        self.down: set[int] = set()
        self.latencies: Sequence[float] = (0.0005, 0.001, 0.002, 0.02)
        self.slow: dict[int, float] = {}
        self._random = random
        self._loop = loop
        self._busy_until: dict[_Line, float] = {}

    def call(  # noqa: C901 - the three steps of one request
        self, host: str, channel: str, broker: int, operation: Operation, timeout: float
    ) -> asyncio.Future[Any]:
        """Send a request; ``operation`` runs at the broker, and its reply resolves the future.

        The future raises KafkaConnectionError or RequestTimedOutError if no answer arrives.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        sender = OWNER.get()
        line = (host, channel, broker)
        given_up = self._loop.call_later(timeout, self._fail, answer, RequestTimedOutError)

        def arrive() -> None:
            if answer.done():
                return
            if broker in self.down:
                self._fail(answer, KafkaConnectionError)
            elif (host, broker) in self.cut:
                if sender is None or not sender.is_dead:
                    self._later(line, arrive, _RETRANSMISSION)
            else:
                operation(reply)

        def reply(result: object) -> None:
            is_lost = (host, broker) in self.deaf
            result = KafkaConnectionError() if is_lost else result
            self._later((host, channel, -1 - broker), lambda: receive(result))

        def receive(result: object) -> None:
            if answer.done():
                return
            if broker in self.down:
                self._fail(answer, KafkaConnectionError)
            elif (host, broker) in self.cut:
                self._later(line, lambda: receive(result), _RETRANSMISSION)
            else:
                given_up.cancel()
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

        self._later(line, arrive)
        return answer

    @staticmethod
    def _fail(answer: asyncio.Future[Any], error: type[Exception]) -> None:
        if not answer.done():
            answer.set_exception(error())

    def _later(self, line: _Line, what: Callable[[], None], least: float = 0.0) -> None:
        broker = line[2] if line[2] >= 0 else -1 - line[2]
        latency = least + self._random.choice(self.latencies) + self.slow.get(broker, 0.0)
        at = max(self._loop.time() + latency, self._busy_until.get(line, 0.0))
        self._busy_until[line] = at + 1e-6
        self._loop.call_at(at, what, context=_NOBODY)
