"""The model that the settings name, and that it is what it should be."""

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


def test_without_a_setting_it_is_the_packaged_one():
    found = find_model(None, None)

    assert found.description == PACKAGED
    assert find_model(None, None) == found


def test_packaged_weights_that_were_changed_are_refused_by_what_they_are(folder, monkeypatch):
    monkeypatch.setattr(module, "get_model_path", lambda: folder)

    with pytest.raises(
        EmbeddingError, match=rf"embedding\.model: .*{re.escape(str(folder))}.* have the SHA-256 9a129"
    ):
        find_model(None, None)


def test_packaged_weights_that_are_gone_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "get_model_path", lambda: tmp_path)

    with pytest.raises(EmbeddingError, match=r"model\.safetensors cannot be read: No such"):
        find_model(None, None)


@pytest.mark.parametrize("name", ["model.safetensors", "1_Pooling/config.json", "new.json"])
def test_a_folder_with_another_content_is_another_model(folder, name):
    before = find_model(str(folder), None)
    (folder / name).write_bytes(b"other")

    assert find_model(str(folder), None).fingerprint != before.fingerprint


def test_a_name_that_is_no_folder_needs_a_revision_and_both_settings_are_named():
    with pytest.raises(EmbeddingError, match=r"embedding\.model: 'nosuch/model' .* embedding\.revision"):
        find_model("nosuch/model", None)


@pytest.mark.parametrize(("revision", "fixed"), [("b" * 40, True), ("main", False), ("v1.0", False)])
def test_only_a_commit_of_the_hub_is_the_same_for_ever(revision, fixed):
    found = find_model("some/model", revision)

    assert (found.fingerprint is not None) == fixed
    assert found.description == f"some/model@{revision}"
