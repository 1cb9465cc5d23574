"""A window is computed only once, and the cache's memory is bounded."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from worker.embedding.recent import RecentVectors
from worker.embedding.transformer import Transformer, TransformerEmbedder, Window


def vector(number):
    return np.full(3, number, dtype=np.float32)


def test_a_vector_is_found_only_by_its_exact_token_ids():
    recent = RecentVectors()
    recent.add([1, 2], vector(1))

    assert np.array_equal(recent.find((1, 2)), vector(1))
    assert recent.find([2, 1]) is None
    assert recent.find([1, 2, 0]) is None
    assert recent.find([]) is None


def test_a_cached_vector_does_not_change_with_its_original_batch():
    recent = RecentVectors()
    batch = np.ones((2, 3), dtype=np.float32)
    recent.add([1], batch[0])

    batch[:] = 9

    assert np.array_equal(recent.find([1]), vector(1))


def test_the_least_recently_used_are_evicted_first():
    recent = RecentVectors(limit=2)
    recent.add([1], vector(1))
    recent.add([2], vector(2))
    recent.find([1])
    recent.add([3], vector(3))

    assert [recent.find([number]) is not None for number in (1, 2, 3)] == [True, False, True]


WORDS = {word: number for number, word in enumerate(["a", "b", "c", "d"])}


class CountingForward:
    """A forward pass with vectors that identify the ids; counts computed windows."""

    precision = "float32"

    def __init__(self):
        self.computed = []

    def __call__(self, ids):
        self.computed += map(tuple, ids.tolist())
        return np.array([[sum(5**n * (one + 1) for n, one in enumerate(row)), len(row)] for row in ids])


@pytest.fixture
def forward():
    return CountingForward()


@pytest.fixture
def embedder(forward):
    return make_embedder(forward)


def make_embedder(forward):
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    runtime = SimpleNamespace(
        transformer=Transformer(dimensions=2, identity="", tokenizer=tokenizer.to_str()),
        name="",
        device="cpu",
        parallel=1,
        forward=lambda precision: forward,
    )
    return TransformerEmbedder(runtime, Window(max_tokens=3, truncation="sdk"), "float32", "")


def test_a_window_is_computed_once_within_and_across_batches(embedder, forward):
    first = embedder.embed(["a b", "c", "a b", "a b c d"])
    again = embedder.embed(["a b c a", "a b"])

    assert forward.computed == [(0, 1), (2,), (0, 1, 2)]
    assert (first.repeated, again.repeated) == (1, 2)
    assert np.array_equal(again.vectors, first.vectors[[3, 0]])
    assert (first.truncated, again.truncated) == (1, 1)


@given(
    st.lists(st.lists(st.text("abcd", min_size=1, max_size=1), min_size=1, max_size=5).map(" ".join)).map(
        lambda texts: texts + texts[::2]
    ),
    st.integers(1, 4),
)
def test_repeats_change_no_vector(texts, size):
    embedder = make_embedder(CountingForward())
    batches = [texts[start : start + size] for start in range(0, len(texts), size)]

    got = [vector.tolist() for batch in batches for vector in embedder.embed(batch).vectors]

    assert got == [make_embedder(CountingForward()).embed([text]).vectors[0].tolist() for text in texts]


def test_the_cache_is_shared_between_threads():
    recent = RecentVectors(limit=8)

    def use(number):
        recent.add([number % 16], vector(number % 16))
        found = recent.find([number % 16])
        return found is None or np.array_equal(found, vector(number % 16))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(2000)))
