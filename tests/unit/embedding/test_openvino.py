"""A converted model is kept whole or not at all, and whatever happens to what is kept, a start goes on."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from worker.embedding.source import find_model
from worker.embedding.transformer import Transformer, Window

TINY = Transformer(dimensions=3, identity="tiny", tokenizer="{}")
IDS = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int64)


@pytest.fixture
def openvino():
    from worker.embedding import openvino

    return openvino


@pytest.fixture
def conversions(openvino, monkeypatch):
    """Replace the conversion of a whole model with that of a network that doubles ids, and count them."""
    from openvino import Model, opset8

    conversions = []

    def convert(source, window):
        ids = opset8.parameter([-1, -1], np.int64, name="ids")
        doubled = opset8.multiply(opset8.convert(ids, "f32"), opset8.constant(2.0, np.float32))
        conversions.append(source)
        return Model([doubled], [ids], "tiny"), TINY

    monkeypatch.setattr(openvino, "_convert", convert)
    return conversions


@pytest.fixture
def load(openvino, tmp_path):
    def load(window=Window(), folder=tmp_path / "cache", model=None):  # noqa: B008 - a frozen dataclass
        runtime = openvino.load_openvino(find_model(model, None), window, folder)
        assert runtime.transformer == TINY
        assert np.array_equal(runtime.forward("float32")(IDS), 2 * IDS)

    return load


def test_a_model_is_converted_once_for_each_window_and_content(load, conversions, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("1")

    load()
    load()
    assert len(conversions) == 1
    load(Window(max_tokens=128))
    load(Window(truncation="sdk"))
    load(model=str(model))
    load(model=str(model))
    assert len(conversions) == 4
    (model / "weights").write_text("2")
    load(model=str(model))
    assert len(conversions) == 5


def test_a_hub_model_is_kept_only_where_the_revision_cannot_move(openvino, conversions, tmp_path):
    for revision in ("main", "main", "a" * 40, "a" * 40):
        openvino.load_openvino(find_model("some/model", revision), Window(), tmp_path)

    assert [source.revision for source in conversions] == ["main", "main", "a" * 40]


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("harm", [truncate, change, Path.unlink, lambda file: file.write_bytes(b"")])
@pytest.mark.parametrize("name", ["model.xml", "model.bin", "about.json"])
def test_a_kept_model_that_is_damaged_is_converted_again(load, conversions, tmp_path, caplog, name, harm):
    load()
    (kept,) = (tmp_path / "cache").rglob(name)
    harm(kept)

    with caplog.at_level(logging.WARNING):
        load()
    assert len(conversions) == 2
    assert "converting the model again" in caplog.text
    assert str(kept.parent) in caplog.text
    load()
    assert len(conversions) == 2


def test_a_folder_that_cannot_be_written_costs_a_conversion_each_start(load, conversions, tmp_path, caplog):
    (tmp_path / "cache").write_text("a file where the folder should be")

    with caplog.at_level(logging.WARNING):
        load()
        load()

    assert len(conversions) == 2
    assert "each start converts the model again: it cannot be kept in" in caplog.text


def test_without_a_folder_nothing_is_kept(load, conversions):
    load(folder=None)
    load(folder=None)

    assert len(conversions) == 2


def test_workers_that_start_together_do_not_disturb_each_other(load, conversions, tmp_path):
    failures = []

    def start():
        try:
            load()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert len(list((tmp_path / "cache").iterdir())) == 1
    before = len(conversions)
    load()
    assert len(conversions) == before


def test_vectors_stay_as_they_were_when_the_next_batch_is_computed(openvino, conversions):
    forward = openvino.OpenVinoRuntime(*openvino._convert(None, Window()), parallel=2).forward("float32")

    first = forward(IDS)
    forward(IDS + 1)

    assert np.array_equal(first, 2 * IDS)


def test_a_precision_that_the_cpu_lacks_is_not_claimed(openvino, conversions, monkeypatch):
    """OpenVINO then computes in float32, and only its own property tells."""

    class Lacking(openvino.openvino.Core):
        def compile_model(self, network, device, config):
            return super().compile_model(network, device, config | {"INFERENCE_PRECISION_HINT": "f32"})

    monkeypatch.setattr(openvino.openvino, "Core", Lacking)
    runtime = openvino.OpenVinoRuntime(*openvino._convert(None, Window()))

    assert runtime.forward("bfloat16").precision == "float32"


def test_openvino_reports_nothing_to_its_makers():
    """Its telemetry would, at each import and each conversion, unless the user knew to switch it off."""
    code = (
        "import sys, worker.embedding.openvino, openvino.tools.ovc.telemetry_utils as utils\n"
        "sys.exit(utils.tm.__name__ != 'openvino.tools.ovc.telemetry_stub')"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.model
def test_a_kept_model_needs_no_pytorch(tmp_path):
    """Which takes seconds and 600 MB; the vectors are those of the first start."""
    code = (
        "import sys, pathlib\n"
        "from worker.embedding import load_embedder\n"
        "from worker.settings import CacheSettings, EmbeddingSettings\n"
        "settings = EmbeddingSettings(cache_folder=pathlib.Path(sys.argv[1]), device='cpu')\n"
        "embedder = load_embedder(settings, CacheSettings())\n"
        "print('torch' in sys.modules, embedder.precision, embedder.embed(['text']).vectors.tobytes().hex())"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]

    (torch, *first), (again, *second) = (
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(2)
    )

    assert (torch, again) == ("True", "False")
    assert first == second
