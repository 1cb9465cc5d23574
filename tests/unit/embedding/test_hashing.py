"""The hashing embedder: vectors depend on the words alone, on every machine."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.embedding import HashingEmbedder

TEXT = "the lock file is stale, größer \ud800"


def test_a_text_has_the_same_vector_in_every_process():
    """Python's own hash of a string differs from process to process."""
    code = (
        "import sys; from worker.embedding import HashingEmbedder; embedder = HashingEmbedder(32);"
        f"sys.stdout.write(embedder.identity + embedder.embed([{TEXT!a}]).vectors.tobytes().hex())"
    )
    here = HashingEmbedder(32)

    elsewhere = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }

    assert elsewhere == {here.identity + here.embed([TEXT]).vectors.tobytes().hex()}


@given(st.text(), st.integers(1, 64))
def test_every_text_has_a_unit_vector_in_every_dimension(text, dimensions):
    [vector] = HashingEmbedder(dimensions).embed([text]).vectors

    assert vector.shape == (dimensions,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


def test_words_matter_but_not_their_order_case_or_spacing():
    embedder = HashingEmbedder()

    one, same, more = embedder.embed(["Fix  the\nbuild", "the build fix", "fix fix the build"]).vectors

    assert np.array_equal(one, same)
    assert not np.array_equal(one, more)


def test_words_beyond_the_window_are_ignored():
    embedder = HashingEmbedder(max_tokens=3)

    embeddings = embedder.embed(["a b c", "a b c d", "a b c e f", "a b"])

    assert embeddings.truncated == 2
    assert np.array_equal(embeddings.vectors[0], embeddings.vectors[1])
    assert np.array_equal(embeddings.vectors[0], embeddings.vectors[2])
    assert not np.array_equal(embeddings.vectors[0], embeddings.vectors[3])


def test_the_identity_depends_on_the_dimensions_and_the_text():
    embedders = HashingEmbedder(384), HashingEmbedder(385), HashingEmbedder(384, text="agent")

    assert len({embedder.identity for embedder in embedders}) == 3
    assert [embedder.description for embedder in embedders] == ["hashing", "hashing", "hashing, text agent"]
