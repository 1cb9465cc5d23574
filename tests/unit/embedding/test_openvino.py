"""A converted model is stored atomically, and a damaged one never prevents a start."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from worker.embedding.source import find_model
from worker.embedding.transformer import Transformer, Window
from worker.errors import EmbeddingError

TINY = Transformer(dimensions=3, identity="tiny", tokenizer="{}")
IDS = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int64)


@pytest.fixture
def openvino():
    from worker.embedding import openvino

    return openvino


@pytest.fixture
def conversions(openvino, monkeypatch):
    """Replace the conversion with that of a tiny network that doubles ids, and count the conversions."""
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


def test_a_model_is_converted_once_per_window_and_content(load, conversions, tmp_path):
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


def test_a_hub_model_is_stored_only_if_its_revision_cannot_move(openvino, conversions, tmp_path):
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
def test_a_damaged_stored_model_is_converted_again(load, conversions, tmp_path, caplog, name, harm):
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


def test_a_read_only_folder_costs_a_conversion_each_start(load, conversions, tmp_path, caplog):
    (tmp_path / "cache").write_text("a file where the folder should be")

    with caplog.at_level(logging.WARNING):
        load()
        load()

    assert len(conversions) == 2
    assert "cannot store the model in" in caplog.text


def test_nothing_is_stored_without_a_folder(load, conversions):
    load(folder=None)
    load(folder=None)

    assert len(conversions) == 2


def test_workers_can_start_at_the_same_time(load, conversions, tmp_path):
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


def test_vectors_do_not_change_when_the_next_batch_is_computed(openvino, conversions):
    forward = openvino.OpenVinoRuntime(*openvino._convert(None, Window()), parallel=2).forward("float32")

    first = forward(IDS)
    forward(IDS + 1)

    assert np.array_equal(first, 2 * IDS)


def test_a_precision_that_the_cpu_lacks_is_not_reported(openvino, conversions, monkeypatch):
    """OpenVINO then computes in float32, as only its own property shows."""

    def lacking(network, device, config):
        return compile_model(network, device, config | {"INFERENCE_PRECISION_HINT": "f32"})

    compile_model = openvino._CORE.compile_model
    monkeypatch.setattr(openvino._CORE, "compile_model", lacking)
    runtime = openvino.OpenVinoRuntime(*openvino._convert(None, Window()))

    assert runtime.forward("bfloat16").precision == "float32"


@pytest.fixture
def product(openvino):
    """A runtime of a network with one matrix product, and its weights, some of them all zero."""
    from openvino import Model, opset8

    weights = np.random.default_rng(0).normal(size=(3, 128)).astype(np.float32)
    weights[0] = 0.0
    ids = opset8.parameter([-1, 128], np.int64, name="ids")
    network = Model([opset8.matmul(opset8.convert(ids, "f32"), weights, False, True)], [ids], "product")
    return openvino.OpenVinoRuntime(network, TINY), weights


def test_int8_is_close_to_float32_and_leaves_the_network_as_it_was(product, monkeypatch):
    monkeypatch.setattr("worker.embedding.int8.is_supported", lambda: True)
    runtime, weights = product
    ids = np.random.default_rng(1).integers(-100, 100, size=(5, 128))

    quantized, original = runtime.forward("int8"), runtime.forward("float32")

    assert quantized.precision == "int8"
    expected = (ids @ weights.T).astype(np.float32)
    np.testing.assert_allclose(original(ids), expected, rtol=1e-4, atol=1e-3)
    assert not np.array_equal(quantized(ids), original(ids))
    np.testing.assert_allclose(quantized(ids), expected, rtol=0, atol=0.02 * np.abs(expected).max())


def test_int8_of_a_model_with_nothing_to_quantize_is_an_error(openvino, conversions, monkeypatch):
    """Otherwise it would be called int8, but be as slow as before."""
    monkeypatch.setattr("worker.embedding.int8.is_supported", lambda: True)

    with pytest.raises(EmbeddingError, match=r"embedding\.precision: got int8, which needs a model with"):
        openvino.OpenVinoRuntime(*openvino._convert(None, Window())).forward("int8")


def test_int8_on_a_cpu_without_it_is_an_error_that_names_the_setting(product, monkeypatch):
    """Without these instructions it would be slower than float32."""
    monkeypatch.setattr("worker.embedding.int8.is_supported", lambda: False)

    with pytest.raises(
        EmbeddingError, match=r"embedding\.precision: got int8, which needs a CPU with AVX-512"
    ):
        product[0].forward("int8")


def test_threads_that_embed_first_at_the_same_time_do_not_deadlock():
    """With the GIL held, the process hung for good: its bindings initialize NumPy at the first tensor.

    A worker that has all measurements from an earlier start embeds first in the batcher's threads.
    """
    code = """if True:
        import faulthandler, os, sys, threading
        import numpy as np
        from worker.embedding import openvino
        from worker.embedding.transformer import Transformer

        def start():
            faulthandler.dump_traceback_later(30, exit=True)
            ids = openvino.openvino.opset8.parameter([-1, -1], np.int64, name="ids")
            network = openvino.openvino.Model([openvino.openvino.opset8.convert(ids, "f32")], [ids], "tiny")
            forward = openvino.OpenVinoRuntime(network, Transformer(3, "tiny", "{}"), 2).forward("float32")
            barrier = threading.Barrier(2)
            def embed():
                barrier.wait()
                forward(np.ones((1, 3), dtype=np.int64))
            threads = [threading.Thread(target=embed) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        sys.setswitchinterval(1e-6)
        for _ in range(20):
            child = os.fork()
            if child == 0:
                start()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    """

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_signal_is_handled_after_several_models_came_and_went():
    """With a Core for each, the next signal was a SIGSEGV, which left no message."""
    code = """if True:
        import signal
        import numpy as np
        from worker.embedding import openvino
        from worker.embedding.transformer import Transformer

        ids = openvino.openvino.opset8.parameter([-1, -1], np.int64, name="ids")
        network = openvino.openvino.Model([openvino.openvino.opset8.convert(ids, "f32")], [ids], "tiny")
        runtime = openvino.OpenVinoRuntime(network, Transformer(3, "tiny", "{}"))
        first, second = runtime.forward("float32"), runtime.forward("float32")
        del first
        del second

        signal.signal(signal.SIGTERM, lambda number, _: print("handled", number))
        signal.raise_signal(signal.SIGTERM)
    """

    process = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert (process.returncode, process.stdout) == (0, "handled 15\n")


def test_openvino_reports_nothing_to_its_makers():
    """Its telemetry would, at each import and conversion, unless the user opts out."""
    code = (
        "import sys, worker.embedding.openvino, openvino.tools.ovc.telemetry_utils as utils\n"
        "sys.exit(utils.tm.__name__ != 'openvino.tools.ovc.telemetry_stub')"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.model
def test_a_stored_model_needs_no_pytorch(tmp_path):
    """PyTorch takes seconds and 600 MB to import; the vectors equal those of the first start."""
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
