"""The novelty cache gives exactly the results of a list of the last entries."""

import os
import shutil
import subprocess
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from knowledgepulse_worker.scoring import LOOK_UPS, Nearest, VectorCache, look_ups
from knowledgepulse_worker.scoring.look_ups import libraries
from support.memory import traced

DIMENSIONS = 3
SECONDS = os.environ.get("FUZZ_SECONDS", "0")
TIMES = st.integers(0, 20)
# Along an axis, at any length: normalised without rounding, so that equals are equal to the last bit.
AXES = st.builds(
    lambda axis, length: np.eye(DIMENSIONS)[axis] * length,
    st.integers(0, DIMENSIONS - 1),
    st.sampled_from([1, -1, 4, -0.25, 0]),
)


LIBRARIES = [*libraries(), None]
"""Those that this processor runs, and none, as where the worker was installed without a C compiler."""


def made(library, *arguments):
    """Return a cache that looks up with a library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look_ups, "libraries", lambda: () if library is None else (library,))
        cache = VectorCache(*arguments)
        assert (cache._entries.compiled is None) == (library is None)
        return cache


class LikeAListOfTheLast(RuleBasedStateMachine):
    """Runs the cache against its definition."""

    @initialize(
        library=st.sampled_from(LIBRARIES),
        max_elements=st.integers(1, 5),
        ttl=st.none() | st.integers(1, 10),
    )
    def start(self, library, max_elements, ttl):
        self.cache = made(library, max_elements, DIMENSIONS, ttl)
        self.entries = deque(maxlen=max_elements)
        self.added = 0
        self.expected = []

    @rule(vector=AXES, at=TIMES)
    def add(self, vector, at):
        self.added += 1
        self.cache.add(vector, id=str(self.added), at=at)
        self.entries.append((str(self.added), np.sign(vector), at))

    @rule(vectors=st.lists(AXES, min_size=1, max_size=LOOK_UPS))
    def expect(self, vectors):
        self.cache.expect(vectors)
        self.expected = vectors

    @precondition(lambda self: self.expected)
    @rule(number=st.integers(0, LOOK_UPS), at=TIMES, add=st.booleans())
    def look_up_what_is_expected(self, number, at, add):
        vector = self.expected[number % len(self.expected)]
        self.look_up(vector, at)
        if add:
            self.add(vector, at)

    @rule(vector=AXES, at=TIMES)
    def look_up(self, vector, at):
        since = -1 if self.cache.ttl is None else at - self.cache.ttl
        seen = [
            (float(unit @ np.sign(vector)), id_) for id_, unit, added_at in self.entries if added_at >= since
        ]
        best = max(seen, key=lambda entry: entry[0], default=None)

        nearest = self.cache.nearest(vector, at=at)

        assert nearest == (None if best is None else Nearest(*best))
        assert self.cache.max_cosine_similarity(vector, at=at) == (None if best is None else best[0])

    @rule()
    def clear(self):
        self.cache.clear()
        self.entries.clear()

    @invariant()
    def size(self):
        assert self.cache.size == len(self.cache) == len(self.entries)


TestLikeAListOfTheLast = LikeAListOfTheLast.TestCase

COMPONENTS = st.floats(-1, 1, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)
VECTORS = st.lists(COMPONENTS, min_size=4, max_size=4).filter(any)


@given(st.lists(VECTORS, min_size=1, max_size=20), VECTORS, st.integers(1, 8))
def test_the_similarity_is_the_largest_cosine_with_the_last_entries(vectors, query, max_elements):
    cache = VectorCache(max_elements, 4)
    for vector in vectors:
        cache.add(vector)

    kept = np.array(vectors[-max_elements:], dtype=np.float64)
    cosines = kept @ query / np.linalg.norm(kept, axis=1) / np.linalg.norm(query)
    assert cache.max_cosine_similarity(query) == pytest.approx(cosines.max(), abs=1e-6)


def random_vectors(count: int) -> np.ndarray:
    """Vectors that each resemble a recent one, as traces do."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((count, 384))
    for row in range(1, count):
        vectors[row] = vectors[random.integers(max(0, row - 20), row)] + 0.3 * vectors[row]
    return vectors


def test_of_equal_entries_the_oldest_is_returned_whatever_their_positions():
    """A matrix product may round equal rows differently, depending on their position."""
    wrong = []
    for vector in random_vectors(10):
        cache = VectorCache(40, 384)
        for number in range(40):
            cache.add(vector, id=str(number))
            if cache.nearest(vector).id != "0":
                wrong.append((cache.size, cache.nearest(vector)))

    assert wrong == []


def nearly_equal(count: int, dimensions: int, seed: int) -> np.ndarray:
    """Vectors whose similarities differ in their last digits, and some that are equal."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal(dimensions) + 1e-6 * random.standard_normal((count, dimensions))
    vectors[count // 2 :: 7] = vectors[3]
    return vectors.astype(np.float32)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dimensions", [1, 2, 7, 8, 9, 31, 128, 129, 384, 768, 1025])
@pytest.mark.parametrize("kind", ["nearly equal", "others", "large and small"])
def test_a_similarity_is_the_largest_sum_in_numpy_s_order(library, dimensions, kind):
    """Otherwise, scores would depend on how the worker was installed."""
    vectors = nearly_equal(60, dimensions, 1)
    if kind != "nearly equal":
        vectors[::2] = np.random.default_rng(2).standard_normal((30, dimensions))
    if kind == "large and small":
        vectors *= np.float32(10.0) ** np.random.default_rng(3).integers(-30, 30, (60, 1))
    cache, kept = made(library, 40, dimensions), deque(maxlen=40)
    for number, vector in enumerate(vectors):
        unit = cache._unit(vector)
        if kept:
            rows = np.array([row for _, row in kept], np.float64)
            exact = np.add.reduce(rows * unit.astype(np.float64), axis=1)
            first = int(exact.argmax())
            assert cache.nearest(vector) == Nearest(float(exact[first]), kept[first][0])
        cache.add(vector, id=str(number))
        kept.append((str(number), unit))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_vector_with_gaps_is_read_without_them(library):
    cache = made(library, 4, 3)
    cache.add(np.array([1, 9, 2, 9, 3, 9])[::2], id="same")
    cache.add([-1, 0, 0], id="other")

    assert cache.nearest(np.array([1.0, 5, 2, 5, 3, 5], np.float32)[::2]).id == "same"
    assert cache.nearest(np.array([0.0, 5, 0, 5, 0, 5], np.float32)[::2]).similarity == 0


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ttl", [None, 50])
def test_expected_look_ups_have_the_same_results_to_the_last_bit(library, ttl):
    """Otherwise, scores would depend on how many records wait at a time."""
    one_by_one, at_once = made(library, 40, 384, ttl), made(library, 40, 384, ttl)
    vectors = [*random_vectors(200).astype(np.float32)]

    for start in range(0, 200, LOOK_UPS):
        at_once.expect(vectors[start : start + LOOK_UPS])
        for at in range(start, start + LOOK_UPS):
            assert at_once.nearest(vectors[at], at=at) == one_by_one.nearest(vectors[at], at=at)
            for cache in (at_once, one_by_one):
                cache.add(vectors[at], id=str(at), at=at)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1], r"expected a vector of shape \(2,\), got \(1,\)"),
        ([1, 0, 0], r"expected a vector of shape \(2,\), got \(3,\)"),
        ([[1, 0]], r"expected a vector of shape \(2,\), got \(1, 2\)"),
        (1, r"expected a vector of shape \(2,\), got \(\)"),
        ([np.nan, 0], "not finite"),
        ([np.inf, 0], "not finite"),
        ([0, -np.inf], "not finite"),
    ],
)
def test_an_invalid_vector_is_rejected_and_changes_nothing(library, vector, message):
    cache = made(library, 1, 2)
    cache.add([1, 0], id="kept")

    with pytest.raises(ValueError, match=message):
        cache.add(vector, id="refused")
    cache.expect([vector])
    with pytest.raises(ValueError, match=message):
        cache.nearest(vector)

    assert cache.nearest([1, 0]) == Nearest(1, "kept")
    assert cache.size == 1


def test_the_cache_copies_the_caller_s_vector():
    vector = np.array([1, 0], dtype=np.float32)
    cache = VectorCache(1, 2)
    cache.add(vector)

    vector[:] = [0, 1]

    assert cache.max_cosine_similarity([1, 0]) == 1


@pytest.mark.parametrize(
    "arguments",
    [{"max_elements": 0}, {"max_elements": -1}, {"dimensions": 0}, {"ttl": 0}, {"ttl": -1.0}],
)
def test_sizes_and_the_ttl_must_be_positive(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        VectorCache(**arguments)


def test_of_nearly_equal_entries_the_more_similar_is_returned():
    """Entries within the rounding error are compared again, exactly; age decides only between equals."""
    cache = VectorCache(max_elements=4, dimensions=3)
    cache.add([1, 2e-3, 0], id="older")  # 2e-6 from the most similar
    cache.add([1, 0, 0], id="nearest")

    assert cache.nearest([1, 0, 0]) == Nearest(1.0, "nearest")
    assert cache.nearest([0, 0, 1]) == Nearest(0.0, "older")


def test_equal_entries_are_compared_once():
    """A fleet's retries fill the cache with one vector, of which each copy would be computed exactly."""
    cache = VectorCache(20_000, 64)
    for number in range(20_000):
        cache.add(np.ones(64), id=str(number), at=0)

    with traced() as memory:
        nearest = cache.nearest(np.ones(64), at=0)

    assert nearest.id == "0"
    assert memory.peak < 20_000 * 64 * np.dtype(np.float64).itemsize / 4


def test_a_cache_takes_memory_with_its_first_vector():
    """Without an embedder, a worker of a thousand partitions has a thousand caches and no vector."""
    with traced() as memory:
        cache = VectorCache(20_000, 64)
        assert cache.nearest(np.ones(64)) is None
    assert memory.peak < 100_000

    with traced() as memory:
        cache.add(np.ones(64))
    assert memory.peak > 20_000 * 64 * np.dtype(np.float32).itemsize


@pytest.mark.timeout(300 + float(SECONDS))
@pytest.mark.slow
@pytest.mark.parametrize(("march", "needed"), [("k8", 1), ("haswell", 2), ("cascadelake", 3)])
def test_sanitizers_find_nothing_in_any_look_up(march, needed, tmp_path):
    compiler = shutil.which("gcc")
    if compiler is None or len(libraries()) < needed:
        pytest.skip("no gcc, or another processor")
    checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    include = f"-I{Path(look_ups.__file__).parent}"
    program = Path(__file__).with_name("fuzz_nearest.c")
    command = [compiler, "-std=c11", "-O1", "-g", f"-march={march}", *checks, include, program, "-lm"]
    subprocess.run([*command, "-o", tmp_path / "fuzz"], check=True)

    ran = subprocess.run([tmp_path / "fuzz", "1", SECONDS], check=False, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr[-3000:]
