"""Run a model in OpenVINO, the fastest runtime on CPUs: converted once, and stored for later starts.

A stored model runs without PyTorch, so that a start takes one second and a quarter of the memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import sys
import threading
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import joblib
import numpy as np
from numpy.typing import NDArray

from worker.embedding import int8
from worker.embedding.source import ModelSource
from worker.embedding.transformer import Forward, Precision, Transformer, Window
from worker.errors import EmbeddingError

# OpenVINO would report imports and conversions to its makers; without this module it does not.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
import openvino  # noqa: E402

# The bindings initialize their use of NumPy at the first tensor. Two threads that do so at the same time
# deadlock, one of them with the GIL.
_ = openvino.Tensor(np.zeros(1, dtype=np.float32)).data

# One for the process: a Core's CPU plugin gives the thread that loads it a signal stack, and unmaps it when
# the Core goes. With several, a thread was left with an unmapped one: its next signal was a SIGSEGV.
_CORE = openvino.Core()

logger = logging.getLogger(__name__)

_HINTS: dict[Precision, str] = {"float32": "f32", "bfloat16": "bf16", "int8": "bf16"}
"""The precision of all that is not quantized."""
_MODEL, _WEIGHTS, _ABOUT = "model.xml", "model.bin", "about.json"
_CONVERTERS = ("openvino", "sentence-transformers", "torch", "transformers")
_TOLERANCE = 1e-5
"""Largest accepted difference of a converted model's vectors from PyTorch's, in float32."""


class OpenVinoForward:
    """A compiled forward pass.

    Args:
        compiled: maps token ids to vectors.
        precision: the precision of its arithmetic.
    """

    def __init__(self, compiled: openvino.CompiledModel, precision: Precision) -> None:
        self.precision: Precision = precision
        self._compiled = compiled
        self._threads = threading.local()

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Turn token ids, shape (texts, tokens), into unit vectors, shape (texts, dimensions)."""
        request: openvino.InferRequest | None = getattr(self._threads, "request", None)
        if request is None:
            request = self._threads.request = self._compiled.create_infer_request()
        # Copied, not shared: memory shared with a request has corrupted the heap once both were freed.
        request.infer({0: ids})
        vectors: NDArray[np.float32] = request.get_output_tensor().data.copy()  # the next call overwrites it
        return vectors


class OpenVinoRuntime:
    """Runs a converted model on the CPU.

    Args:
        network: maps token ids to vectors.
        transformer: the model.
        parallel: the number of concurrently calling threads; they share the cores.
    """

    name = f"OpenVINO {openvino.__version__.partition('-')[0]}"
    device = "cpu"

    def __init__(self, network: openvino.Model, transformer: Transformer, parallel: int = 1) -> None:
        self.network = network
        self.transformer = transformer
        self.parallel = parallel

    def forward(self, precision: Precision) -> OpenVinoForward:
        """Return the forward pass in a precision, or in float32 if the CPU lacks bfloat16.

        Raises:
            EmbeddingError: the CPU lacks int8.
        """
        if precision == "int8" and not int8.is_supported():
            raise EmbeddingError(
                "embedding.precision: got int8, which needs a CPU with AVX-512 VNNI or AVX-VNNI, and Linux; "
                "set auto"
            )
        compiled = _CORE.compile_model(
            int8.with_int8_weights(self.network) if precision == "int8" else self.network,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": _HINTS[precision],
                "NUM_STREAMS": self.parallel,
                "INFERENCE_NUM_THREADS": max(self.parallel, joblib.cpu_count()),
                "ENABLE_CPU_PINNING": False,  # several workers would all pin themselves to the same cores
                # In shapes of about 300 kB per layer; the default would let texts of all lengths use 1 GB.
                "CPU_RUNTIME_CACHE_CAPACITY": 64,
                "DYNAMIC_QUANTIZATION_GROUP_SIZE": int8.GROUP,  # only of networks with weights in int8
            },
        )
        computed = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        lacks_bfloat16 = precision == "bfloat16" and computed != _HINTS[precision]
        return OpenVinoForward(compiled, "float32" if lacks_bfloat16 else precision)


def load_openvino(
    source: ModelSource, window: Window, folder: Path | None, parallel: int = 1
) -> OpenVinoRuntime:
    """Return the model converted at an earlier start, or convert it.

    Args:
        source: the model.
        window: the part of a text that it will read.
        folder: stores converted models; None stores none.
        parallel: the number of concurrently calling threads.

    Raises:
        EmbeddingError: the model cannot be loaded.
        Exception: OpenVINO or PyTorch could not convert the model.
    """
    stored = None
    if folder is not None and source.fingerprint is not None:
        stored = folder / _key(source.fingerprint, window)
        if stored.is_dir():
            try:
                return OpenVinoRuntime(*_read(stored), parallel)
            except Exception as error:  # noqa: BLE001 - incomplete, damaged, or from another version
                logger.warning("converting the model again, since %s is unusable: %r", stored, error)
    network, transformer = _convert(source, window)
    if stored is not None:
        try:
            _write(network, transformer, stored)
            network, transformer = _read(stored)  # so that this start computes the same vectors as later ones
        except (OSError, RuntimeError, ValueError) as error:
            logger.warning("cannot store the model in %s, so each start converts it: %s", stored, error)
    return OpenVinoRuntime(network, transformer, parallel)


def _key(fingerprint: str, window: Window) -> str:
    converters = {name: metadata.version(name) for name in _CONVERTERS}
    about = json.dumps([fingerprint, asdict(window), converters])
    return hashlib.sha256(about.encode()).hexdigest()[:32]


def _convert(source: ModelSource, window: Window) -> tuple[openvino.Model, Transformer]:
    # Importing torch takes seconds and 600 MB, and a stored model does not need it.
    import torch  # noqa: PLC0415

    from worker.embedding.pytorch import PyTorchRuntime  # noqa: PLC0415

    original = PyTorchRuntime(source, window)
    shape = (2, window.max_tokens)
    any_size = torch.export.Dim.DYNAMIC
    with torch.no_grad():
        exported = torch.export.export(
            original.module, (torch.ones(shape, dtype=torch.int64),), dynamic_shapes=((any_size, any_size),)
        )
    runtime = OpenVinoRuntime(openvino.convert_model(exported), original.transformer)
    _require_agreement(runtime.forward("float32"), original.forward("float32"), shape)
    return runtime.network, original.transformer


def _require_agreement(converted: Forward, original: Forward, longest: tuple[int, int]) -> None:
    """Raise ValueError if the vectors of one, several, or the longest texts differ."""
    generator = np.random.default_rng(0)
    for texts, tokens in ((1, 3), (3, max(3, longest[1] // 2)), longest):
        ids = generator.integers(0, 1000, size=(texts, tokens))
        difference = float(np.abs(converted(ids) - original(ids)).max())
        if not difference <= _TOLERANCE:  # also true for NaN
            raise ValueError(f"the converted model's vectors differ from the original's by {difference:.1e}")


def _write(network: openvino.Model, transformer: Transformer, folder: Path) -> None:
    """Store a model atomically."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix="new-") as temporary:
        new = Path(temporary) / folder.name
        openvino.save_model(network, new / _MODEL, compress_to_fp16=False)
        about = {"transformer": asdict(transformer), "sha256": _digests(new)}
        (new / _ABOUT).write_text(json.dumps(about))
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)


def _read(folder: Path) -> tuple[openvino.Model, Transformer]:
    about = json.loads((folder / _ABOUT).read_text())
    if about["sha256"] != _digests(folder):
        raise ValueError("its files have changed since they were written")
    return _CORE.read_model(folder / _MODEL), Transformer(**about["transformer"])


def _digests(folder: Path) -> dict[str, str]:
    digests = {}
    for name in (_MODEL, _WEIGHTS):
        with (folder / name).open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
