"""The compiled forward pass, in threads, and what OpenVINO does to its process."""

import subprocess
import sys

import numpy as np
import pytest

from knowledgepulse_worker.embedding import forward as module
from knowledgepulse_worker.embedding.bert import read_bert
from knowledgepulse_worker.embedding.forward import Forward, precisions
from knowledgepulse_worker.errors import ModelError
from support.bert import write_bert


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("model"))


@pytest.fixture
def bert(folder):
    return read_bert(folder)


def test_vectors_do_not_change_when_the_next_text_is_computed(bert):
    forward = Forward(bert, "float32", 8)

    first = forward([2, 5, 3])
    copy = first.copy()
    forward([2, 6, 3])

    assert np.array_equal(first, copy)


def test_after_warming_no_length_is_new(bert, monkeypatch):
    """OpenVINO compiles each shape at its first text, which would take that text's time."""
    forward = Forward(bert, "float32", 40, parallel=2)
    shapes = set()
    infer = module.openvino.InferRequest.infer

    def recorded(request, inputs):
        shapes.add(inputs["ids"].shape)
        return infer(request, inputs)

    monkeypatch.setattr(module.openvino.InferRequest, "infer", recorded)
    forward.warm()
    warmed = set(shapes)
    for length in range(1, 41):
        forward([5] * length)

    assert shapes == warmed
    assert warmed == {(1, 16), (1, 32), (1, 40)}


@pytest.fixture
def processor(monkeypatch):
    """Sets the processor's capabilities, and the instructions to which oneDNN is limited."""

    def have(capabilities, limit="ALL", former_limit="ALL"):
        monkeypatch.setattr(module._CORE, "get_property", lambda _device, _name: capabilities)
        for name, value in [("ONEDNN_MAX_CPU_ISA", limit), ("DNNL_MAX_CPU_ISA", former_limit)]:
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return have


@pytest.mark.parametrize(
    ("capabilities", "limit", "former_limit", "expected"),
    [
        (["FP32", "BF16", "INT8"], None, None, ("bfloat16", "float32")),
        (["FP32", "INT8"], None, None, ("float32",)),
        (["FP32", "BF16", "INT8"], "avx512_core", None, ("float32",)),
        (["FP32", "BF16", "INT8"], None, "AVX2", ("float32",)),
        (["FP32", "BF16", "INT8"], "AVX512_CORE_BF16", "AVX2", ("bfloat16", "float32")),
    ],
)
def test_the_precisions_are_those_that_the_processor_has_instructions_for(
    processor, capabilities, limit, former_limit, expected
):
    processor(capabilities, limit, former_limit)

    assert precisions() == expected


def test_a_precision_that_the_processor_lacks_is_refused_with_those_that_it_has(bert, processor):
    """OpenVINO emulates it without a word, thirty times as slowly, or cannot compile the network."""
    processor(["FP32", "INT8"])

    with pytest.raises(ModelError, match=r"embedding\.precision: got bfloat16, .* set auto or float32"):
        Forward(bert, "bfloat16", 8)


def run(folder, code):
    start = "import sys; from pathlib import Path; "
    start += "from knowledgepulse_worker.embedding.bert import read_bert; "
    start += (
        "from knowledgepulse_worker.embedding.forward import Forward; bert = read_bert(Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-c", start + code, str(folder)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.slow
def test_threads_that_embed_first_at_the_same_time_do_not_deadlock(folder):
    """With the GIL held, the process hung for good: its bindings initialize NumPy at the first tensor."""
    code = """if True:
        import faulthandler, os, threading

        def start():
            faulthandler.dump_traceback_later(60, exit=True)
            forward = Forward(bert, "float32", 8, 2)
            barrier = threading.Barrier(2)
            def embed():
                barrier.wait()
                forward([2, 5, 3])
            threads = [threading.Thread(target=embed) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        sys.setswitchinterval(1e-6)
        for _ in range(5):
            child = os.fork()
            if child == 0:
                start()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    """
    assert run(folder, code).returncode == 0


@pytest.mark.slow
def test_a_signal_is_handled_after_several_models_came_and_went(folder):
    """With a Core for each, the next signal was a SIGSEGV, which left no message."""
    code = """if True:
        import signal
        first, second = (Forward(bert, "float32", 8) for _ in range(2))
        del first
        del second
        signal.signal(signal.SIGTERM, lambda number, _: print("handled", number))
        signal.raise_signal(signal.SIGTERM)
    """
    done = run(folder, code)
    assert (done.returncode, done.stdout) == (0, "handled 15\n")


@pytest.mark.slow
def test_openvino_reports_nothing_to_its_makers(folder):
    """Its telemetry would, at each import, unless the user opts out."""
    done = run(folder, "sys.exit(sys.modules['openvino_telemetry'] is not None)")
    assert done.returncode == 0
