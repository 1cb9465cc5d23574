"""Measure a rolling upgrade and the loss of a zone with many partitions and workers.

The worker's parts and their requests are real. The latencies of
:mod:`knowledgepulse_kafka.testing.network`, a start that takes ``START``
seconds and arbitrarily fast brokers are models. Vectors have 4 dimensions, so ``VECTOR`` bytes are
added.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter, defaultdict
from itertools import pairwise
from statistics import quantiles

from knowledgepulse_kafka.testing.virtual_time import run
from knowledgepulse_worker.settings import Settings
from simulation.clock import simulated_process
from simulation.histories import History, Publication, Setting
from simulation.worker_player import WorkerPlayer

INTERVAL = 2.0
"""Seconds between two records of a partition."""
START = 10.0
"""Seconds from a worker's end to its successor's first request: to load the image and the model."""
PAUSE = 10.0
"""Seconds of calm before and after what happens."""
VECTOR = (384 - 4) * 4
_REQUESTS = ("join", "sync", "heartbeat", "fetch_offsets", "leave")


class Trial(WorkerPlayer):
    """A fleet and the script of events that happen to it."""

    def __init__(self, partitions, pods):
        setting = Setting(partitions, pods, 1000, None, 64, 0.2, False, True, False, True, (), False)
        settings = Settings(embedding={"backend": "lexical"}, cache={"dimensions": 4})
        super().__init__(History(0, setting, (), ()), False, settings)
        self.cluster.transactions.on_rest = lambda: None
        self.appended = defaultdict(list)
        self.repeats = self.changelog_bytes = self.entries = 0
        self.requests = defaultdict(Counter)
        self._seen = set()
        for name in _REQUESTS:
            self._count(name)

    def _count(self, name):
        ask = getattr(self.cluster.group, name)

        def counted(*arguments):
            self.requests[int(self._loop.time())][name] += 1
            ask(*arguments)

        setattr(self.cluster.group, name, counted)

    def _appended(self, topic, partition, first, records, writer):
        if topic.name == self.changelog:
            values = [record.value for record in records if record.value is not None]
            self.entries += len(values)
            self.changelog_bytes += sum(len(record.key) + len(record.value or b"") for record in records)
            return
        for record in records:
            self.repeats += record.key in self._seen
            self._seen.add(record.key)
            self.appended[partition].append(self._loop.time())

    async def _publish_all(self):
        number, partitions = 0, self.history.setting.partitions
        while True:
            self._publish(number, Publication(number % partitions, 0.0, "trace"))
            number += 1
            await asyncio.sleep(INTERVAL / partitions)

    async def measure(self, script):
        """Run a script on a fleet that has settled; return the times of its beginning and end."""
        for pod in self.world.pods:
            pod.start()
        publishing = asyncio.create_task(self._publish_all())
        await asyncio.sleep(30)
        started = self._loop.time()
        await asyncio.sleep(PAUSE)
        await script(self)
        ended = self._loop.time()
        await asyncio.sleep(4 * PAUSE)
        publishing.cancel()
        return started, ended

    def report(self, started, ended):
        pauses = []
        for times in self.appended.values():
            gaps = [b - a - INTERVAL for a, b in pairwise(times) if b > started]
            pauses.append((sum(gap for gap in gaps if gap > 0.3), max(gaps, default=0.0)))
        whole, longest = zip(*pauses, strict=True)
        calm = [self.requests[second].total() for second in range(int(started), int(started + PAUSE))]
        peak = max(
            (counts.total() for second, counts in self.requests.items() if second > started), default=0
        )
        total = Counter()
        for second, counts in self.requests.items():
            total += counts if second > started + PAUSE else Counter()
        print(f"  {ended - started - PAUSE:.0f} s; without output, per partition: {_spread(whole)} in all,")
        print(f"  {_spread(longest)} at once; {self.repeats} of {len(self._seen)} records were sent again")
        print(f"  coordinator: {sum(calm) / PAUSE:.0f}/s in calm, at most {peak}/s; {dict(total)}")
        print(
            f"  changelog: {self.changelog_bytes / max(1, self.entries) + VECTOR:.0f} bytes a record",
            flush=True,
        )


async def rolling(trial, workers=None):
    """Replace workers one after another, waiting until each replacement has started."""
    for pod in trial.world.pods[:workers]:
        pod.stop()
        while pod.runs:
            await asyncio.sleep(0.1)
        await asyncio.sleep(START)
        pod.start()
        await asyncio.sleep(PAUSE)


async def lost_zone(trial):
    """Remove a third of the workers and one of two brokers; the workers restart elsewhere."""
    pods, cluster = trial.world.pods[::3], trial.cluster
    for pod in pods:
        pod.is_wanted = False
        pod.kill()
    cluster.network.down.add(0)
    await asyncio.sleep(9)  # broker.session.timeout.ms
    cluster.move_leaders(0)
    cluster.group.move(1, 1.0)
    await asyncio.sleep(6 * START)
    for pod in pods:
        pod.start()
    await asyncio.sleep(3 * START)


def _spread(seconds):
    cuts = quantiles(seconds, n=100)
    return f"median {cuts[49]:.1f}, p99 {cuts[98]:.1f}, most {max(seconds):.1f} s"


def main():
    parser = argparse.ArgumentParser(prog="python -m simulation.sizing", description=__doc__)
    parser.add_argument("partitions", type=int)
    parser.add_argument("workers", type=int)
    parser.add_argument("--replaced", type=int, help="workers that the upgrade replaces; all")
    arguments = parser.parse_args()
    for script in (lambda trial: rolling(trial, arguments.replaced), lost_zone):
        trials, began = [], time.monotonic()

        async def course(script=script, trials=trials):
            trials.append(Trial(arguments.partitions, arguments.workers))
            return await trials[0].measure(script)

        with simulated_process():
            bounds = run(course, limit=10**9)
        took = time.monotonic() - began
        print(f"{arguments.partitions} partitions, {arguments.workers} workers, played in {took:.0f} s")
        trials[0].report(*bounds)


if __name__ == "__main__":
    main()
