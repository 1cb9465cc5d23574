"""Run a network on the CPU with a small number of input shapes."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.embedding.base import Precision
from knowledgepulse_worker.embedding.bert import Bert
from knowledgepulse_worker.embedding.cores import usable_cores
from knowledgepulse_worker.embedding.instructions import allows_bfloat16
from knowledgepulse_worker.embedding.network import build_network, openvino
from knowledgepulse_worker.errors import ModelError

# The bindings initialize their use of NumPy at the first tensor. If two threads do this at the same time,
# they deadlock, and one of them holds the GIL.
_ = openvino.Tensor(np.zeros(1, dtype=np.float32)).data

# The process has a single Core. A Core's CPU plugin gives the thread that loads it a signal stack, and unmaps
# it when the Core is deleted. With several Cores, a thread kept an unmapped signal stack, and its next signal
# became a SIGSEGV.
_CORE = openvino.Core()

_LENGTH_MULTIPLE = 16
"""Lengths are rounded up to a multiple of this, since OpenVINO compiles the network for every length."""

_HINTS = {"float32": "f32", "bfloat16": "bf16"}


def precisions() -> tuple[Precision, ...]:
    """Return OpenVINO's precisions that the CPU has instructions for, the fastest first."""
    if "BF16" in _CORE.get_property("CPU", "OPTIMIZATION_CAPABILITIES") and allows_bfloat16():
        return ("bfloat16", "float32")
    return ("float32",)


def require_precision(precision: Precision, has: Collection[Precision]) -> None:
    """Refuse a precision that a processor has no instructions for: emulation takes thirty times as long.

    Args:
        precision: the precision.
        has: those that the processor has instructions for.

    Raises:
        ModelError: the processor lacks it; the message names those that it has.
    """
    if precision not in has:
        raise ModelError(
            f"embedding.precision: got {precision}, for which this processor has no instructions; "
            f"set auto or {' or '.join(has)}"
        )


class Forward:
    """A model's compiled forward pass for a single text, callable from several threads at once.

    Texts are padded to a multiple of 16 tokens, or to the longest text. Several texts per call would be no
    faster, and in bfloat16 a text's vector would depend on the other texts.

    Args:
        bert: the model.
        precision: the number format of the arithmetic.
        longest: the longest text, in tokens.
        parallel: the number of threads that call concurrently; they share the cores.

    Raises:
        ModelError: the CPU has no instructions for the precision.
    """

    runtime = f"OpenVINO {openvino.__version__.partition('-')[0]}"

    def __init__(self, bert: Bert, precision: Precision, longest: int, parallel: int = 1) -> None:
        require_precision(precision, precisions())
        settings = {
            "INFERENCE_PRECISION_HINT": _HINTS[precision],
            "NUM_STREAMS": parallel,
            "INFERENCE_NUM_THREADS": max(parallel, usable_cores()),
            "ENABLE_CPU_PINNING": False,  # several workers would all pin themselves to the same cores
        }
        self._network = _CORE.compile_model(build_network(bert), "CPU", settings)
        self._longest = longest
        self._parallel = parallel
        self._threads = threading.local()

    def __call__(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Turn a text's token ids, at most ``longest``, into a unit vector, shape (dimensions,)."""
        if not hasattr(self._threads, "request"):
            self._threads.request = self._network.create_infer_request()
        request: openvino.InferRequest = self._threads.request
        length = min(-(-len(ids) // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE, self._longest)
        padded = np.zeros((1, length), dtype=np.int64)
        padded[0, : len(ids)] = ids
        # Copy the inputs, since memory that was shared with a request has corrupted the heap when both were
        # freed.
        request.infer({"ids": padded, "length": np.array([len(ids)], dtype=np.int64)})
        vector: NDArray[np.float32] = request.get_output_tensor().data[0]
        return vector.copy()  # the next call overwrites it

    def warm(self) -> None:
        """Compile the network for every shape in every stream, so that it does not delay the first texts."""
        lengths = [*range(_LENGTH_MULTIPLE, self._longest, _LENGTH_MULTIPLE), self._longest]

        def run(_thread: int) -> None:
            for length in lengths:
                self([0] * length)

        with ThreadPoolExecutor(self._parallel) as threads:
            list(threads.map(run, range(self._parallel)))
