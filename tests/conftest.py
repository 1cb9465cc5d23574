"""The real traces, the scores that the reference gives them, a real broker and topics of each test's own."""

import gc
import json
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka import CLIENT
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding.cores import usable_cores
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.settings import Settings, render
from knowledgepulse_worker.tools.demo.brokers import Broker
from support import traces
from support.java_kafka import running_broker
from support.one_broker import SHARED_BROKER
from support.scored import published
from support.streams import Stream, own_settings

# The same examples at every run: what a random search finds becomes an example of its test. A machine may be
# busy: how long an example takes is no property.
hypothesis.settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "search", hypothesis.settings.get_profile("same"), derandomize=False, max_examples=2000, print_blob=True
)
hypothesis.settings.load_profile("same")

# A shell lets what it runs in the background ignore Ctrl-C, and so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Start two processes for each core, as tests of whole workers wait for half of their time.

    With `--numprocesses logical`, start one more than there are cores: the fast tests wait for a part of
    their time, and each process has to collect all tests.
    """
    cores = usable_cores()
    return cores + 1 if config.option.numprocesses == "logical" else 2 * cores


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, which would look at each test again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _client_logs_as_before() -> Iterator[None]:
    """A publisher silences the client of its process, which other tests share."""
    client = logging.getLogger(CLIENT)
    before = client.level
    yield
    client.setLevel(before)


@pytest.fixture(scope="session", autouse=True)
def default_hangup() -> None:
    """Handle SIGHUP by default, also in a shell that ignores it, as under nohup: workers inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Undo what a command does to this process: processes that later tests start would not end by SIGTERM."""
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Apache Kafka; where it can't be had, the tests that need it fail and say how to get it.

    `make test` starts it once for all processes.
    """
    if servers := os.environ.get(SHARED_BROKER):
        yield Broker(servers, "configured", "the broker of all processes")
        return
    with running_broker(print) as broker:
        yield broker


@pytest.fixture(scope="session")
def real_traces() -> list[bytes]:
    """The 154 real traces as the values of Kafka records."""
    return traces.real_traces()


@pytest.fixture(scope="session")
def reference_scores() -> list[dict[str, Any]]:
    """What the KnowledgePulse SDK 0.1.1 gave the real traces, on one pass in order from an empty cache."""
    return [json.loads(line) for line in traces.SCORES.read_bytes().splitlines()]


@pytest.fixture
def config(tmp_path: Path) -> Callable[[Settings], str]:
    """Write settings to a file that a command takes as `--config`; returns its path."""

    def write(settings: Settings) -> str:
        path = tmp_path / "settings.toml"
        path.write_text(render(settings))
        return str(path)

    return write


@pytest.fixture
def make_stream(broker: Broker, tmp_path: Path) -> Callable[..., Awaitable[Stream]]:
    """Make a stream: `await make_stream(partitions=4, embedding={...})`; it embeds lexically by default.

    Its session timeout is the shortest that brokers accept: tests wait for it wherever they kill a worker.
    """

    async def make(partitions: int = 1, **sections: Mapping[str, Any]) -> Stream:
        usual = {"embedding": {"backend": "lexical"}, "kafka": {"session_timeout": 6.0}}
        stream = Stream(own_settings(broker.bootstrap_servers, "test", usual, sections), tmp_path)
        await stream.create_topics(partitions)
        return stream

    return make


@pytest.fixture(scope="session")
def published_traces(real_traces: list[bytes]) -> list[ConsumerRecord]:
    """Return the real traces as published by a worker without an embedder."""
    scorer = Scorer()
    return [
        published(offset, line, scorer.evaluate(ReasoningTrace.model_validate_json(line)), scorer.policy)
        for offset, line in enumerate(real_traces)
    ]
