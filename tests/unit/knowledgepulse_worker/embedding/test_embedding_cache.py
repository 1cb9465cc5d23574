"""A window is computed only once, and the cache's memory is bounded."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.embedding.base import ModelInput
from knowledgepulse_worker.embedding.embedding_cache import EmbeddingCache
from knowledgepulse_worker.embedding.tokenizing import Window
from knowledgepulse_worker.embedding.transformer import TransformerEmbedder
from knowledgepulse_worker.embedding.weights import ModelFolder
from support.bert import WIDTH, write_bert


def vector(number):
    return np.full(3, number, dtype=np.float32)


def test_the_least_recently_used_are_evicted_first():
    recent = EmbeddingCache(limit=2)
    recent.add([1], vector(1))
    recent.add([2], vector(2))
    recent.find([1])
    recent.add([3], vector(3))

    assert [recent.find([number]) is not None for number in (1, 2, 3)] == [True, False, True]


class CountingForward:
    """A forward pass with vectors that identify the ids; records the computed windows."""

    precision = "float32"

    def __init__(self):
        self.computed = []

    def __call__(self, ids):
        self.computed.append(ids)
        return np.array([hash(ids), len(ids), *[0] * (WIDTH - 2)])


@pytest.fixture
def forward():
    return CountingForward()


@pytest.fixture
def embedder(make_embedder, forward):
    return make_embedder(forward)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ModelFolder(write_bert(tmp_path_factory.mktemp("model")), "")


@pytest.fixture(scope="module")
def make_embedder(model):
    """A factory of embedders; the network is compiled only once."""
    compiled = TransformerEmbedder(model, Window(max_tokens=4), ModelInput(), "float32")

    def make(forward):
        embedder = copy.copy(compiled)
        embedder._forward, embedder._recent = forward, EmbeddingCache()
        return embedder

    return make


def test_a_window_is_computed_once_within_and_across_batches(embedder, forward):
    first = embedder.embed(["a b", "c", "a b", "a b c d"])
    again = embedder.embed(["a b d d", "a b"])

    assert len(forward.computed) == 2  # of "a b", with which the longer texts begin, and "c"
    assert (first.repeated, again.repeated) == (2, 2)
    assert np.array_equal(again.vectors, first.vectors[[3, 0]])
    assert (first.truncated, again.truncated) == (1, 1)


@given(
    st.lists(st.lists(st.text("abcd", min_size=1, max_size=1), min_size=1, max_size=5).map(" ".join)).map(
        lambda texts: texts + texts[::2]
    ),
    st.integers(1, 4),
)
def test_repeats_change_no_vector(make_embedder, texts, size):
    embedder = make_embedder(CountingForward())
    batches = [texts[start : start + size] for start in range(0, len(texts), size)]

    got = [vector.tolist() for batch in batches for vector in embedder.embed(batch).vectors]

    assert got == [make_embedder(CountingForward()).embed([text]).vectors[0].tolist() for text in texts]


def test_the_cache_is_shared_between_threads():
    recent = EmbeddingCache(limit=8)

    def use(number):
        recent.add([number % 16], vector(number % 16))
        found = recent.find([number % 16])
        return found is None or np.array_equal(found, vector(number % 16))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(2000)))
