"""The embedder that the settings ask for, and errors that name the setting to change."""

import subprocess
import sys

import pytest

from worker.embedding import HashingEmbedder, load_embedder
from worker.errors import EmbeddingError
from worker.settings import CacheSettings, EmbeddingSettings


def load(**embedding):
    return load_embedder(EmbeddingSettings(**embedding), CacheSettings(dimensions=16))


def test_none_is_no_embedder():
    assert load(backend="none") is None


def test_hashing_takes_the_caches_dimensions_and_the_window():
    embedder = load(backend="hashing", max_tokens=3)

    assert isinstance(embedder, HashingEmbedder)
    assert (embedder.dimensions, embedder.max_tokens) == (16, 3)


def test_neither_needs_torch():
    code = "import sys, worker.embedding; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_folder_that_is_not_there_needs_a_revision_and_both_settings_are_named():
    with pytest.raises(EmbeddingError, match=r"embedding\.model: 'nosuch/model' .* embedding\.revision"):
        load(model="nosuch/model")


def test_a_folder_without_a_model_is_named_with_its_setting(tmp_path):
    with pytest.raises(EmbeddingError, match=f"embedding.model: '{tmp_path}' cannot be loaded"):
        load(model=str(tmp_path))


def test_a_model_that_the_hub_does_not_give_is_named_with_its_setting(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no such model")

    monkeypatch.setattr("worker.embedding.sentence_transformers.SentenceTransformer", refuse)

    with pytest.raises(EmbeddingError, match=r"embedding\.model: 'some/model' cannot be loaded: no such"):
        load(model="some/model", revision="abc")


@pytest.mark.model
def test_dimensions_that_are_not_the_models_are_refused_with_both_numbers():
    with pytest.raises(EmbeddingError, match=r"cache\.dimensions: got 16; all-MiniLM-L6-v2 .* of 384"):
        load()


@pytest.mark.model
def test_a_window_that_the_model_does_not_have_is_refused():
    from worker.embedding.sentence_transformers import SentenceTransformersEmbedder

    with pytest.raises(EmbeddingError, match=r"embedding\.max_tokens: got 513; .* reads at most 512"):
        SentenceTransformersEmbedder(max_tokens=513)
