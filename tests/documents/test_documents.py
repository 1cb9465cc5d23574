"""The documents do what they say: a reader runs each block in order, with nothing but the page."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from uuid import uuid4

import pytest

from knowledgepulse_worker.tools.demo.processes import free_ports
from support.backends import AgentRun, FakePhoenix
from support.documents import DOCUMENTS, Reader, blocks, read, section, starts, table

NEEDS_KAFKA = {
    "README.md",
    "docs/consumers/consume.md",
    "docs/consumers/export.md",
    "docs/curators/audit.md",
    "docs/curators/dataset.md",
    "docs/operators/dead-letters.md",
    "docs/operators/monitoring.md",
    "docs/producers/publish.md",
    "docs/producers/convert.md",
    "docs/producers/spans.md",
}
NEEDS_BACKEND = {"docs/producers/backends.md"}
NEEDS_TRAINER = {"docs/curators/dataset.md": "5. Train"}
"""The pages with a step of training, and the heading above it."""
NEEDS_MODEL = {"docs/curators/threshold.md"}

UNENDING = "worker/knowledgepulse_kafka/README.md"
"""A document with a program that runs until it is stopped; `test_kafka_example` runs and stops it."""

FROM_A_CHECKOUT = "from a checkout"
"""Words on a page of `docs/` that needs a checkout; the other documents are read in one."""


def marked(document):
    needs = [
        *([pytest.mark.integration] if document in NEEDS_KAFKA else []),
        *([pytest.mark.model] if document in NEEDS_MODEL else []),
        *([pytest.mark.reference] if document in NEEDS_TRAINER else []),
    ]
    return pytest.param(document, marks=needs)


@pytest.fixture
def phoenix():
    """The address of a small Phoenix with runs. It has a thread of its own, as a reader blocks this one."""
    fake, ready = FakePhoenix(), Future()
    fake.runs = [AgentRun(number) for number in range(12)]

    async def serve():
        stop = asyncio.Event()
        async with fake.served() as url:
            ready.set_result((url, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    url, loop, stop = ready.result(60)
    yield url
    loop.call_soon_threadsafe(stop.set)
    thread.join()


@contextmanager
def reading(request, document, folder):
    """A reader with an empty folder or a checkout.

    If the document needs Kafka, only addresses, ports and names of topics are replaced by the test's own.
    """
    # The cache of `datasets` knows a dataset by its relative path, and would give that of another test.
    environment = {"HF_HOME": str(folder.with_name(f"{folder.name}-cache"))}
    renamed, prefix = {}, ""
    if document in NEEDS_KAFKA:
        servers = request.getfixturevalue("broker").bootstrap_servers
        prefix, (port, second_port) = f"documents-{uuid4().hex[:8]}-", free_ports(2)
        environment |= {
            "KP_KAFKA__BOOTSTRAP_SERVERS": servers,
            "KP_KAFKA__GROUP": f"{prefix}knowledgepulse-worker",
            "KP_TOPICS__RAW": f"{prefix}raw-traces",
            "KP_TOPICS__CONTRIBUTE": f"{prefix}contribute",
            "KP_TOPICS__REJECTED": f"{prefix}rejected",
            "KP_TOPICS__DEAD_LETTER": f"{prefix}dead-letter",
            "KP_ASSEMBLE__SPANS": f"{prefix}otlp_spans",
            "KP_ASSEMBLE__LATE": f"{prefix}late-spans",
            "KP_WEB__PORT": str(port),
        }
        renamed = {
            "localhost:9092": servers,
            "localhost:6066": f"localhost:{port}",
            "KP_WEB__PORT=6067": f"KP_WEB__PORT={second_port}",
            "raw-traces": f"{prefix}raw-traces",
            '"contribute"': f'"{prefix}contribute"',
            "otlp_spans": f"{prefix}otlp_spans",
        }
    if document in NEEDS_BACKEND:
        renamed["http://127.0.0.1:6006"] = request.getfixturevalue("phoenix")
    checkout = not document.startswith("docs/") or FROM_A_CHECKOUT in read(document).lower()
    reader = Reader(folder, environment, renamed, prefix, checkout=checkout)
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def reader_of_the_quickstart(request, tmp_path_factory):
    """The one reader of the README and of the pages that go on from its quickstart: it is followed once."""
    with reading(request, "README.md", tmp_path_factory.mktemp("quickstart")) as reader:
        yield reader


@pytest.fixture
def reader(request, tmp_path):
    """The reader of the quickstart and of what goes on from it, or of this document alone."""
    document = request.node.callspec.params["document"]
    if starts(document):
        yield request.getfixturevalue("reader_of_the_quickstart")
    else:
        with reading(request, document, tmp_path) as reader:
            yield reader


@pytest.mark.slow
@pytest.mark.parametrize("document", sorted(NEEDS_BACKEND))
def test_each_command_of_the_table_of_wants_does_its_work(document, reader):
    """Those that need Kafka are run by the tests of `pull` and `evaluations`."""
    (settings,) = section(document, "What to type")
    reader.shell(settings.text)
    run = 0
    for row in table(document, "What to type"):
        _, commands, also = (cell.strip() for cell in row.strip("|").split("|"))
        for command in re.findall("`([^`]+)`", commands) if not also else ():
            reader.shell(command)
            run += 1
    assert run >= 9


@pytest.mark.timeout(600)
@pytest.mark.integration
@pytest.mark.parametrize("document", NEEDS_TRAINER)
def test_the_way_to_a_dataset_needs_no_trainer(document, reader, tmp_path):
    """`make check NAME=reference` also runs the step of training, which takes PyTorch."""
    from datasets import load_dataset  # which takes a second

    reader.read(document, skip=NEEDS_TRAINER[document])

    (kept,) = load_dataset(str(tmp_path / "dataset"), cache_dir=str(tmp_path / "cache"), split=["train"])
    assert kept.num_rows > 0
    assert min(kept["score"]) >= 0.35


# Those of the quickstart come last: its worker runs until the end.
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "document",
    [marked(name) for name in sorted(DOCUMENTS, key=starts) if blocks(name) and name != UNENDING],
)
def test_a_document_does_what_it_says(document, reader):
    reader.read(document)
