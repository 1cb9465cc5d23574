"""The batcher: waiting texts are batched, none waits for others, and none waits forever."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
import pytest

from knowledgepulse_worker.embedding import Batcher, EmbeddedText, Embeddings
from knowledgepulse_worker.errors import EmbeddingError

LIMIT = 60  # seconds until a test gives up on what should have happened


class GatedEmbedder:
    """Embeds a number as its vector, one batch each time the gate opens; records the batches."""

    dimensions = 3
    identity = "gated"
    precision = "float32"
    device = "cpu"
    runtime = "a test"
    parallel = 1
    batch = 64
    description = "gated"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.make: Callable[[Sequence[str]], np.ndarray] = self.numbers

    def numbers(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[float(text)] * self.dimensions for text in texts], dtype=np.float32)

    def embed(self, texts: Sequence[str]) -> Embeddings:
        self.batches.append(list(texts))
        self.threads.add(threading.get_ident())
        self.entered.release()
        self.gate.wait()
        return Embeddings(self.make(texts), truncated=1, repeated=2)

    async def busy(self) -> None:
        """Wait until it has received one more batch."""
        assert await asyncio.to_thread(self.entered.acquire, timeout=LIMIT)


@pytest.fixture
def embedder() -> GatedEmbedder:
    return GatedEmbedder()


@pytest.fixture
async def make_batcher(embedder) -> AsyncIterator[Callable[..., Batcher]]:
    batchers: list[Batcher] = []

    def make(limit=64, **arguments) -> Batcher:
        embedder.batch = limit // embedder.parallel
        batchers.append(Batcher(embedder, **arguments))
        return batchers[-1]

    yield make
    for batcher in batchers:
        await batcher.close()
    embedder.gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("embedder"):
            thread.join(timeout=LIMIT)
            assert not thread.is_alive(), thread.name


async def submit(batcher: Batcher, *texts: str) -> list[asyncio.Task[EmbeddedText]]:
    """Submit the texts in order, and return when each has been admitted or queued."""
    tasks = [asyncio.create_task(embed(batcher, text)) for text in texts]
    await asyncio.sleep(0)
    return tasks


async def embed(batcher: Batcher, text: str) -> EmbeddedText:
    return await (await batcher.submit(text))


async def numbers(tasks: Sequence[asyncio.Future[EmbeddedText]]) -> list[float]:
    async with asyncio.timeout(LIMIT):
        return [float(embedded.vector[0]) for embedded in await asyncio.gather(*tasks)]


@pytest.mark.parametrize("burst", [1, 2, 3, 7, 12])
async def test_parallel_threads_share_the_queue_and_each_takes_at_most_its_share(
    make_batcher, embedder, burst
):
    """So both work at once, and no batch is larger than the embedder says."""
    embedder.parallel = 2
    batcher = make_batcher(limit=6)
    embedder.gate.clear()
    tasks = await submit(batcher, "1", "2")
    await embedder.busy()
    await embedder.busy()
    assert sorted(embedder.batches) == [["1"], ["2"]]

    tasks += await submit(batcher, *(str(3 + number) for number in range(burst)))
    embedder.gate.set()

    assert await numbers(tasks) == [1 + number for number in range(2 + burst)]
    assert len(embedder.threads) == 2
    assert max(map(len, embedder.batches)) <= 3  # 6 admitted, 2 threads


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_than_the_limit_is_admitted_at_a_time(make_batcher, embedder, limit):
    """The rest is admitted only when others are done, so that the budget does not count its wait."""
    texts = [str(number) for number in range(10)]
    tasks = await submit(make_batcher(limit=limit), *texts)

    assert await numbers(tasks) == list(range(10))
    assert [text for batch in embedder.batches for text in batch] == texts
    embedded = [task.result() for task in tasks]
    for first, later in zip(embedded, embedded[limit:], strict=False):
        assert later.admitted >= first.finished
    assert max(map(len, embedder.batches)) <= limit


async def test_the_next_batch_starts_while_the_event_loop_is_busy(make_batcher, embedder):
    """Otherwise the embedder's cores would idle after every batch."""
    embedder.gate.clear()
    tasks = await submit(make_batcher(limit=1), "1", "2")
    await embedder.busy()

    embedder.gate.set()
    assert embedder.entered.acquire(timeout=LIMIT)  # which blocks the event loop

    assert embedder.batches == [["1"], ["2"]]
    assert await numbers(tasks) == [1, 2]


async def test_texts_that_are_submitted_without_a_pause_are_embedded_together(make_batcher, embedder):
    """If each text woke a thread, batches would have one text and the event loop would wait."""
    texts = [str(number) for number in range(5)]

    assert await numbers(await submit(make_batcher(limit=8), *texts)) == list(range(5))

    assert embedder.batches == [texts]


async def test_the_letters_of_one_text_in_each_batch_are_counted(make_batcher, embedder):
    """All of them would cost a fast embedder as much as it takes itself."""
    batcher = make_batcher(limit=3)
    embedder.gate.clear()
    tasks = await submit(batcher, "1")
    await embedder.busy()
    tasks += await submit(batcher, "2", "3")

    embedder.gate.set()

    assert [embedded.letters for embedded in await asyncio.gather(*tasks)] == [(0, 0), (0, 0), None]


async def test_submit_blocks_beyond_what_the_next_batches_need(make_batcher, embedder):
    """Otherwise lanes would decode and hold far more than the embedder can process."""
    batcher = make_batcher(limit=2)
    embedder.gate.clear()
    tasks = await submit(batcher, *"12345678")
    one_more = asyncio.create_task(batcher.submit("9"))
    await embedder.busy()
    assert not one_more.done()

    embedder.gate.set()

    assert await numbers([*tasks, await one_more]) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (EmbeddingError("out of order"), "out of order"),
        (ZeroDivisionError("by nothing"), "gated failed: ZeroDivisionError('by nothing')"),
        (StopIteration(), "gated failed: StopIteration()"),  # which no future takes
        (SystemExit(1), "gated failed: SystemExit(1)"),  # which would end the thread
    ],
    ids=["its own", "any", "StopIteration", "SystemExit"],
)
async def test_an_error_reaches_every_text_of_its_batch_and_none_of_the_next(
    make_batcher, embedder, error, message
):
    failures: list[str] = []
    batcher = make_batcher(on_error=lambda: failures.append("failed"))

    def fail(_):
        raise error

    embedder.make = fail
    results = await asyncio.gather(*await submit(batcher, "1", "2"), return_exceptions=True)

    assert [(type(result), str(result)) for result in results] == [(EmbeddingError, message)] * 2
    assert failures == ["failed"]
    embedder.make = embedder.numbers
    assert await numbers(await submit(batcher, "3")) == [3]


@pytest.mark.parametrize(
    "vectors",
    [
        np.ones((1, 3), np.float32),
        np.ones((3, 3), np.float32),
        np.ones((2, 4), np.float32),
        np.ones(6, np.float32),
        np.full((2, 3), np.nan, np.float32),
        np.array([[0, 0, 1], [0, 0, np.inf]], np.float32),
    ],
    ids=["too few", "too many", "too long", "flat", "nan", "inf"],
)
async def test_malformed_vectors_are_an_error(make_batcher, embedder, vectors):
    """They would stop the lane, or be remembered and corrupt every later score."""
    embedder.make = lambda _: vectors

    results = await asyncio.gather(*await submit(make_batcher(), "1", "2"), return_exceptions=True)

    assert [str(result) for result in results] == ["gated did not return finite vectors of shape (2, 3)"] * 2
    assert all(isinstance(result, EmbeddingError) for result in results)


async def test_a_cancelled_text_is_not_embedded_and_makes_room(make_batcher, embedder):
    batcher = make_batcher(limit=2)
    embedder.gate.clear()
    tasks = await submit(batcher, "1")
    await embedder.busy()
    [given_up] = await submit(batcher, "2")
    tasks += await submit(batcher, "3")

    given_up.cancel()
    await asyncio.wait([given_up])
    embedder.gate.set()

    assert await numbers(tasks) == [1, 3]
    assert embedder.batches == [["1"], ["3"]]


async def test_a_text_cancelled_while_being_embedded_does_not_affect_the_others(make_batcher, embedder):
    batcher = make_batcher()
    embedder.gate.clear()
    given_up, other = await submit(batcher, "1", "2")
    await embedder.busy()

    given_up.cancel()
    embedder.gate.set()

    assert await numbers([other]) == [2]
    assert given_up.cancelled()
    assert await numbers(await submit(batcher, "3")) == [3]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_report_that_raises_leaves_no_waiter(make_batcher, embedder, fails):
    raised: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))
    error = ValueError("no such metric")

    def report(*_):
        raise error

    def broken(_):
        raise EmbeddingError("out of memory")

    batcher = make_batcher(on_batch=report, on_error=report)
    if fails:
        embedder.make = broken
    tasks = await submit(batcher, "1", "2")
    _, waiting = await asyncio.wait(tasks, timeout=LIMIT)

    assert not waiting
    assert [type(task.exception()) for task in tasks] == 2 * [EmbeddingError if fails else type(None)]
    assert set(raised) == {error}


@pytest.mark.parametrize("limit", [64, 1])
async def test_closing_leaves_no_waiter(make_batcher, embedder, limit):
    """Neither for texts in a running batch, nor admitted ones, nor queued ones."""
    batcher = make_batcher(limit=limit)
    embedder.gate.clear()
    tasks = await submit(batcher, "1")
    await embedder.busy()
    tasks += await submit(batcher, "2", "3")

    await batcher.close()

    _, waiting = await asyncio.wait(tasks, timeout=LIMIT)
    for task in waiting:
        task.cancel()
    assert not waiting
    assert all(task.cancelled() for task in tasks)
