"""bfloat16 is chosen if measured to be faster and accurate enough; else float32."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from worker.embedding import Embeddings, HashingEmbedder
from worker.embedding import precision as module
from worker.embedding.precision import choose_precision, sample_texts


class Timed:
    """Hashing with simulated timing and slightly inaccurate vectors."""

    dimensions = 384
    device = "cpu"
    parallel = 1
    identity = description = "timed"

    def __init__(self, precision, clock, seconds, error=0.0):
        self.precision = precision
        self._clock = clock
        self._seconds = seconds
        self._error = error
        self._hashing = HashingEmbedder()

    def embed(self, texts):
        self._clock.now += self._seconds
        vectors = self._hashing.embed(texts).vectors
        # Towards one direction, so that all vectors become more alike.
        vectors = vectors + np.float32(self._error) * np.eye(1, 384, dtype=np.float32)
        return Embeddings(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 0)


@pytest.fixture
def choose(monkeypatch):
    def choose(seconds, error, folder=None):
        clock = SimpleNamespace(now=0.0)
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
        embedders = {
            "float32": Timed("float32", clock, seconds=1.0),
            "bfloat16": Timed("bfloat16", clock, seconds, error),
        }
        return choose_precision(embedders.__getitem__, {}, folder).precision

    return choose


@pytest.mark.parametrize(
    ("seconds", "error", "chosen"),
    [
        (0.5, 0.0, "bfloat16"),
        (1 / 1.31, 0.0, "bfloat16"),
        (1 / 1.29, 0.0, "float32"),
        (3.0, 0.0, "float32"),
        (0.5, 0.02, "bfloat16"),
        (0.5, 0.2, "float32"),
    ],
)
def test_bfloat16_is_chosen_if_it_is_faster_and_novelty_stays(choose, seconds, error, chosen):
    assert choose(seconds, error) == chosen


def test_both_figures_are_logged(choose, caplog):
    with caplog.at_level(logging.INFO):
        choose(0.4, 0.0)

    assert "bfloat16 is 2.50 times as fast as float32 here" in caplog.text
    assert "changes novelty by at most 0.0000" in caplog.text


def test_it_is_measured_once(choose, tmp_path):
    assert choose(0.4, 0.0, tmp_path) == "bfloat16"
    assert choose(3.0, 0.0, tmp_path) == "bfloat16"
    assert choose(3.0, 0.0, tmp_path / "another machine's") == "float32"


def test_it_is_measured_on_real_texts_that_fill_the_window():
    """Short or artificial ones would say little about real traces."""
    texts = sample_texts()

    assert len(set(texts)) == len(texts) >= 10
    assert sum(len(text.split()) > 256 for text in texts) > len(texts) / 2
