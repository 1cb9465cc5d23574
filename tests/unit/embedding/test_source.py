"""Locating the configured model, and verifying the packaged weights."""

import re

import pytest

from worker.embedding import source as module
from worker.embedding.source import PACKAGED, find_model
from worker.errors import EmbeddingError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_the_default_is_the_packaged_model():
    found = find_model(None, None)

    assert found.description == PACKAGED
    assert find_model(None, None) == found


def test_changed_packaged_weights_are_an_error(folder, monkeypatch):
    monkeypatch.setattr(module, "get_model_path", lambda: folder)

    with pytest.raises(
        EmbeddingError, match=rf"embedding\.model: .*{re.escape(str(folder))}.* have the SHA-256 9a129"
    ):
        find_model(None, None)


def test_missing_packaged_weights_are_an_error_that_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "get_model_path", lambda: tmp_path)

    with pytest.raises(EmbeddingError, match=r"model\.safetensors cannot be read: No such"):
        find_model(None, None)


@pytest.mark.parametrize("name", ["model.safetensors", "1_Pooling/config.json", "new.json"])
def test_the_fingerprint_depends_on_a_folder_s_content(folder, name):
    before = find_model(str(folder), None)
    (folder / name).write_bytes(b"other")

    assert find_model(str(folder), None).fingerprint != before.fingerprint


def test_a_hub_name_without_a_revision_is_an_error_that_names_both_settings():
    with pytest.raises(EmbeddingError, match=r"embedding\.model: 'nosuch/model' .* embedding\.revision"):
        find_model("nosuch/model", None)


@pytest.mark.parametrize(("revision", "fixed"), [("b" * 40, True), ("main", False), ("v1.0", False)])
def test_only_a_commit_hash_of_the_hub_has_a_fingerprint(revision, fixed):
    found = find_model("some/model", revision)

    assert (found.fingerprint is not None) == fixed
    assert found.description == f"some/model@{revision}"
