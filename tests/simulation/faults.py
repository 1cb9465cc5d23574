"""The kinds of events that happen to workers and brokers, and how each is undone."""

from __future__ import annotations

from uuid import UUID

from aiokafka.errors import GroupAuthorizationFailedError, RequestTimedOutError
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.testing.brokers import SimTopic
from simulation.policies import policy_of


class Faults:
    """Carries out events.

    Attributes:
        hang_until: the time until which a stopped embedder hangs.

    Args:
        world: the pods and brokers.
        source: the topic that is read.
        oracles, changelog: the oracles and the changelog topic of workers.
    """

    def __init__(self, world, source, oracles=None, changelog=None):
        self.hang_until = 0.0
        self._partitions = len(world.cluster.topics[source].logs)
        self._world = world
        self._oracles = oracles
        self._changelog = changelog
        self._cluster = world.cluster
        self._group = world.cluster.group
        self._network = world.cluster.network
        self._loop = world.cluster.loop
        self._source = source

    def happen(self, event):
        """Let an event happen; return a function that undoes it, or None."""
        return getattr(self, f"_{event.kind}")(event, self._world.pods[event.pod])

    def heal(self):
        """End all faults in progress."""
        network = self._network
        for each in (network.cut, network.deaf, network.down, network.slow, self._cluster.starved):
            each.clear()
        self._group.refusing = self._cluster.quota = None
        for log in [log for topic in self._cluster.topics.values() for log in topic.logs]:
            if log.open_from is not None:
                log.commit()
        for pod in self._world.pods:
            pod.resume()
            pod.start()

    @staticmethod
    def _while_in(members, *added):
        members.update(added)
        return lambda: members.difference_update(added)

    def _broker(self, event):
        return int(event.value * self._cluster.count)

    def _partition(self, event):
        return int(event.value * 1000) % self._partitions

    def _log(self, event):
        return self._cluster.topics[self._source].logs[self._partition(event)]

    # --- workers

    def _kill(self, event, pod):
        pod.kill()

    def _suspend(self, event, pod):
        pod.suspend()
        return pod.resume

    def _stop(self, event, pod):
        pod.stop()
        return pod.start

    def _add(self, event, pod):
        new = self._world.add_pod()
        new.start()
        return new.stop if event.value < 0.5 else lambda: None

    def _policy(self, event, pod):
        self._world.policy = policy_of(event.value)
        self._oracles.policies[self._world.policy.digest] = self._world.policy
        for instance in self._world.pods:
            if instance.runs and instance.app is not None:
                instance.in_force.policy = self._world.policy

    def _hang(self, event, pod):
        if pod.batcher is not None:
            self.hang_until = pod.batcher.hangs_until = self._loop.time() + event.seconds

    def _skew(self, event, pod):
        if pod.process is not None:
            pod.process.skew = (event.value - 0.5) * 100_000

    # --- network

    def _cut(self, event, pod):
        return self._while_in(self._network.cut, (pod.name, self._broker(event)))

    def _isolate(self, event, pod):
        return self._while_in(
            self._network.cut, *((pod.name, number) for number in range(self._cluster.count))
        )

    def _deaf(self, event, pod):
        return self._while_in(self._network.deaf, (pod.name, self._broker(event)))

    def _slow(self, event, pod):
        self._network.slow[self._broker(event)] = 0.3
        return lambda: self._network.slow.pop(self._broker(event), None)

    # --- brokers

    def _down(self, event, pod):
        broker = self._broker(event)
        self._loop.call_later(0.5, self._cluster.move_leaders, broker)
        if self._group.coordinator == broker:
            self._loop.call_later(0.5, self._group.move, (broker + 1) % self._cluster.count, 0.5)
        return self._while_in(self._network.down, broker)

    def _move(self, event, pod):
        self._group.move((self._group.coordinator + 1) % self._cluster.count, 2 * event.value)

    def _move_transactions(self, event, pod):
        self._cluster.transactions.move(2 * event.value)

    def _refuse(self, event, pod):
        self._group.refusing = GroupAuthorizationFailedError if event.value < 0.3 else RequestTimedOutError

        def accept():
            self._group.refusing = None

        return accept

    def _starve(self, event, pod):
        return self._while_in(self._cluster.starved, self._broker(event))

    def _throttle(self, event, pod):
        self._cluster.quota = (100, 400, 1500)[int(event.value * 3)]

        def lift():
            self._cluster.quota = None

        return lift

    def _leaders(self, event, pod):
        self._cluster.move_leaders(self._broker(event))

    def _compact(self, event, pod):
        for log in self._cluster.topics[self._changelog].logs:
            log.compact(self._cluster.random)

    def _retain(self, event, pod):
        log = self._log(event)
        before = int(log.begin + (log.end - log.begin) * event.value)
        log.delete_before(before)

    def _recreate(self, event, pod):
        if event.value < 0.7:  # otherwise the group keeps positions of the topic that is gone
            self._loop.call_later(5 * event.value, self._group.forget, dict(self._group.committed))
        topic_id = UUID(int=self._cluster.random.getrandbits(128)).bytes
        count = len(self._cluster.topics[self._source].logs)
        self._cluster.create(SimTopic.new(self._source, count, topic_id), lag=4 * event.value)

    def _expire(self, event, pod):
        """Delete the group's positions, or set them back to what they were before their last commits.

        A coordinator deletes them once a group has long been without members. A coordinator that lacks the
        last commits is elected uncleanly.
        """
        places = tuple(committed := self._group.committed)
        if self._group.state == "empty" and not self._group.is_pending(places):
            self._oracles.lost.update(committed)
            former = {} if event.value < 0.5 else self._group.former
            self._group.committed = {
                at: former[at]
                for at in places
                if at in former and former[at].metadata == committed[at].metadata
            }

    def _stranger(self, event, pod):
        """Commit a position as an operator does, or another client in the group, while no worker runs."""
        log, partition = self._log(event), self._partition(event)
        at = (self._source, partition)
        if self._group.state != "empty" or self._group.is_pending((at,)):
            return
        start = self._oracles.position(partition)
        stop = start + round((log.stable_end - start) * (event.value * 7 % 1))
        if stop > start:
            self._oracles.pass_over(partition, range(start, stop))
            self._group.committed[at] = OffsetAndMetadata(stop, "")

    def _truncate(self, event, pod):
        """Elect a leader that lacks the last records of a partition."""
        log, partition = self._log(event), self._partition(event)
        if log.open_from is None:
            held = log.end - log.begin
            lost = 1 if event.value < 0.3 else round(held * (event.value * 7 % 1))
            end = log.end - min(lost, held)
            self._oracles.truncate(partition)
            log.truncate(end)

    def _grow(self, event, pod):
        self._cluster.add_partitions(self._source, self._partitions + 1)

    def _transaction(self, event, pod):
        log = self._log(event)
        if log.open_from is None:
            log.open_from = log.end

        def end():
            if log.open_from is not None:
                (log.abort if event.value * 10 % 1 < 0.5 else log.commit)()

        return end
