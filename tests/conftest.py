"""The real traces, the scores that the reference gives them, and a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import worker.demo
from worker.demo.brokers import Broker, running_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Apache Kafka; where it can't be had, the tests that need it fail and say how to get it."""
    with running_broker(allow_embedded=False, say=print) as broker:
        yield broker


@pytest.fixture(scope="session")
def real_traces() -> list[bytes]:
    """The 154 real traces as the values of Kafka records."""
    return Path(worker.demo.__file__).with_name("real_traces.jsonl").read_bytes().splitlines()


@pytest.fixture(scope="session")
def reference_scores() -> list[dict[str, Any]]:
    """What the KnowledgePulse SDK 0.1.1 gave the real traces, on one pass in order from an empty cache."""
    expected = Path(__file__).parent / "data" / "real_traces.expected.jsonl"
    return [json.loads(line) for line in expected.read_bytes().splitlines()]
