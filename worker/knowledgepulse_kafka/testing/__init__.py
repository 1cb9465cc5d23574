"""Brokers in memory, to test a program without a broker.

:class:`~knowledgepulse_kafka.testing.brokers.Cluster` is what brokers keep and do: logs, a group,
transactions, quotas, elections, and a network that can be cut. :class:`Clients` makes what a program would
make of a ``Config``. Both run in any event loop; in that of
:func:`~knowledgepulse_kafka.testing.virtual_time.run`, a session of 10 s expires within a millisecond.

The contract tests run on these brokers and on real ones. No module of the package outside imports this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.testing.brokers import Cluster, SimTopic, new_cluster
from knowledgepulse_kafka.testing.clients import SimReader, SimTopicIds
from knowledgepulse_kafka.testing.member import Moment, SimMember
from knowledgepulse_kafka.testing.transactional_producer import SimProducer
from knowledgepulse_kafka.testing.virtual_time import Process, run
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher

__all__ = ["Clients", "Cluster", "Process", "SimTopic", "new_cluster", "run"]


class Clients:
    """The clients of a program that runs on a host.

    Args:
        cluster: the brokers.
        host: where the program runs, which the network can cut off.
        moment: called with a word at each step of a client, such as "offsets sent"; it may kill or cut off.
        writer: the name that ``Cluster.on_append`` tells of the program.
    """

    def __init__(
        self, cluster: Cluster, host: str = "host", moment: Moment = lambda _: None, writer: str = ""
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._moment = moment
        self.new_producer = partial(SimProducer, cluster, host, moment, writer=writer)

    def member(
        self, config: Config, topics: Sequence[str], rebalance_timeout: float = 30.0, **given: Any
    ) -> SimMember:
        """Return a group's member, which is still to subscribe to the topics."""
        timeouts = (config.session_timeout, rebalance_timeout)
        return SimMember(self._cluster, self._host, topics, *timeouts, self._moment, **given)

    def session(self, config: Config, topics: Sequence[str], transactional_id: str, **given: Any) -> Session:
        """Return a session, as :class:`~knowledgepulse_kafka.session.Session` would be without a broker."""

        def new_member(config: Config, _: int, rebalance_timeout: float, *__: object) -> Any:
            return self.member(config, topics, rebalance_timeout)

        made: dict[str, Any] = {
            "new_member": new_member,
            "new_producer": self.new_producer,
            "decoded_bytes": 10**7,
        }
        return Session(config, topics, transactional_id, **(made | given))

    def publisher(self, config: Config, transactional_id: str, **given: Any) -> TransactionalPublisher:
        """Return a publisher of transactions."""
        new_producer: Any = self.new_producer
        return TransactionalPublisher(config, transactional_id, new_producer=new_producer, **given)

    def reader(self) -> SimReader:
        """Return a reader of ranges of offsets."""
        return SimReader(self._cluster, self._host)

    def topic_ids(self, topic: str) -> SimTopicIds:
        """Return the look-up of a topic's id."""
        return SimTopicIds(self._cluster, self._host, topic)
