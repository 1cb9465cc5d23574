"""The worker sees that producers disagree on the partition of a key."""

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.partitioner import partition_of
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.stream.key_placement import SAMPLED, KeyPlacement

PARTITIONS = 6
AT = Place("raw", 2)
HERE = next(key for key in (b"%d" % n for n in range(100)) if partition_of(key, PARTITIONS) == AT.partition)
ELSEWHERE = next(
    key for key in (b"%d" % n for n in range(100)) if partition_of(key, PARTITIONS) != AT.partition
)


@pytest.fixture
def metrics():
    return Metrics(Policy(), 0.1, CollectorRegistry())


@pytest.fixture
def placement(metrics):
    """Of a partition that ended at offset 800 at the first fetch."""
    placement = KeyPlacement(PARTITIONS, SimpleNamespace(highwater=lambda _: 800), metrics)
    placement.note(AT, records([ELSEWHERE]))
    return placement


def records(keys, start=800):
    """Return records of which each is looked at."""
    return [SimpleNamespace(offset=start + number * SAMPLED, key=key) for number, key in enumerate(keys)]


def counted(metrics):
    samples = metrics.samples("kp_sampled_keys_total")
    return {sample.labels["partitioner"]: sample.value for sample in samples}


def test_a_fifth_of_the_keys_elsewhere_is_told(placement, metrics):
    placement.note(AT, records([*[HERE] * 60, *[ELSEWHERE] * 20]))

    assert placement.problem.startswith(
        "25% of the last 80 keys are not in the partition that Kafka's default "
    )
    assert counted(metrics) == {"murmur2": 60, "other": 20}


@pytest.mark.parametrize("keys", [[HERE] * 90 + [ELSEWHERE] * 10, [ELSEWHERE] * 49], ids=["a tenth", "few"])
def test_less_is_not(placement, keys):
    placement.note(AT, records(keys))

    assert placement.problem == ""


def test_what_was_there_before_counts_for_nothing_as_the_topic_may_have_had_fewer_partitions(
    placement, metrics
):
    placement.note(AT, records([ELSEWHERE] * 100, start=0))

    assert counted(metrics) == {"murmur2": 0, "other": 0}


def test_records_without_a_key_or_with_a_long_one_are_left_out(placement, metrics):
    placement.note(AT, records([None, b"x" * 257, b""]))

    assert sum(counted(metrics).values()) == 1


def test_before_the_partitions_end_is_known_nothing_is_counted(metrics):
    placement = KeyPlacement(PARTITIONS, SimpleNamespace(highwater=lambda _: None), metrics)

    placement.note(AT, records([ELSEWHERE]))
    placement.note(AT, records([ELSEWHERE]))

    assert counted(metrics) == {"murmur2": 0, "other": 0}
