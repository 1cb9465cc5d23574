"""An encoder's arrays, and the calls of the compiled library."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Instructions = Literal["avx512vnni", "avx2"]

_Value = TypeVar("_Value", bound=np.generic)
_CACHE_LINE = 64

_NEEDED: dict[Instructions, set[str]] = {
    "avx512vnni": {"avx512_vnni", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "bmi2", "fma"},
    "avx2": {"avx2", "bmi2", "fma"},
}
"""Linux's names of the instructions that each library may contain."""

_LARGEST = 4095
"""The largest 13-bit integer."""
_PANEL = 16
"""Outputs whose weights are stored together."""
_MULTIPLE = 32
"""What all sizes are multiples of: two registers of floats."""


class Linear(NamedTuple):
    """A matrix, shape (outputs, inputs), and what it adds, shape (outputs,); both float32."""

    weights: Floats
    bias: Floats


class Norm(NamedTuple):
    """The factors of a layer normalization and what it adds, both of shape (width,), float32."""

    factors: Floats
    bias: Floats


class Layer(NamedTuple):
    """A layer of the encoder.

    Attributes:
        attended: makes the queries, then the keys, then the values of all heads.
        joined: joins the heads.
        attention_norm: follows the attention.
        widened: makes the inner values.
        narrowed: turns them into a token again.
        norm: ends the layer.
    """

    attended: Linear
    joined: Linear
    attention_norm: Norm
    widened: Linear
    narrowed: Linear
    norm: Norm


@dataclass(frozen=True)
class EncoderSize:
    """The sizes of an encoder.

    Attributes:
        width: the number of values of a token.
        heads: the number of attention heads.
        inner: the number of inner values of a layer.
        epsilon: the epsilon of the layer normalization.
    """

    width: int
    heads: int
    inner: int
    epsilon: float

    @property
    def runs(self) -> bool:
        """Whether the library can compute with these sizes."""
        return all(size % _MULTIPLE == 0 for size in (self.width, self.inner, self.width // self.heads))


def supported() -> tuple[Instructions, ...]:
    """Return the sets of instructions that were compiled and that the processor has, the fastest first."""
    return tuple(name for name in get_args(Instructions) if _library(name) is not None)


def processor_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Return Linux's names of what the processor can do; none on another system."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


@cache
def _library(instructions: Instructions) -> ctypes.CDLL | None:
    file = Path(__file__).parent / f"{instructions}.so"
    if not file.exists() or not processor_flags() >= _NEEDED[instructions]:
        return None
    library = ctypes.CDLL(str(file))
    size, floats, integers = ctypes.c_size_t, _pointer(np.float32), _pointer(np.int16)
    library.open_encoder.restype = ctypes.c_void_p
    library.open_encoder.argtypes = [
        *(size, size, size, size, ctypes.c_float, integers, size, floats, size, size),
    ]
    library.encode.argtypes = [ctypes.c_void_p, floats, size]
    library.close_encoder.restype = None
    library.close_encoder.argtypes = [ctypes.c_void_p]
    return library


def _pointer(dtype: type[np.generic]) -> Any:
    """Return the type of an argument that is an array of the type, without gaps."""
    return np.ctypeslib.ndpointer(dtype=dtype, flags="C_CONTIGUOUS")


class Encoder:
    """Runs a model's layers over one text at a time, callable from several threads at once.

    Matrices are rounded to 13-bit integers with a scale for each output, and tokens likewise with a scale for
    each token. The sums of their products are exact; everything else is float32.

    Args:
        size: the sizes of the model.
        embedding_norm: normalizes the embedded tokens.
        layers: the layers, each of which is dropped once it is rounded.
        longest: the longest text, in tokens.
        instructions: one of :func:`supported`.

    Raises:
        ValueError: the processor lacks the instructions, or an array is not finite or does not fit the sizes.
    """

    def __init__(
        self,
        size: EncoderSize,
        embedding_norm: Norm,
        layers: Iterable[Layer],
        longest: int,
        instructions: Instructions,
    ) -> None:
        library = _library(instructions)
        if library is None:
            raise ValueError(f"no library for {instructions}; there are {', '.join(supported()) or 'none'}")
        self._library = library
        self._size = size
        self._longest = longest
        weights: list[NDArray[np.int16]] = []
        parameters: list[Floats] = [*embedding_norm]
        self._layers = 0
        for layer in layers:
            self._layers += 1
            scale = np.ones(3 * size.width, dtype=np.float32)
            scale[: size.width] = (size.width // size.heads) ** -0.5  # the queries; so scores need no scale
            for part in layer:
                if isinstance(part, Norm):
                    parameters += part
                    continue
                integers, scales = _rounded(part.weights)
                weights.append(integers)
                factor = scale if part is layer.attended else np.float32(1)
                parameters += [scales * factor, part.bias * factor]
        self._weights = _aligned(weights, np.int16)
        self._parameters = _aligned(parameters, np.float32)
        self._threads = threading.local()
        self._threads.opened = self._open()

    def __call__(self, tokens: Floats) -> None:
        """Turn a text's embedded tokens, shape (tokens, width), into the output of the last layer, in place.

        Raises:
            ValueError: the array has another shape, or more than ``longest`` tokens.
        """
        if tokens.ndim != 2 or tokens.shape[1] != self._size.width:
            raise ValueError(f"the tokens have the shape {tokens.shape}, not (tokens, {self._size.width})")
        if not hasattr(self._threads, "opened"):
            self._threads.opened = self._open()
        if not self._library.encode(self._threads.opened.handle, tokens, tokens.size):
            raise ValueError(f"{len(tokens)} tokens; there are at least 1 and at most {self._longest}")

    def _open(self) -> _Opened:
        size = self._size
        handle = self._library.open_encoder(
            *(self._layers, size.width, size.heads, size.inner, size.epsilon),
            *(self._weights, self._weights.size, self._parameters, self._parameters.size, self._longest),
        )
        if handle is None:
            raise ValueError(
                f"the library refuses {self._layers} layers of {size} with {self._weights.size} weights "
                f"and {self._parameters.size} parameters, for {self._longest} tokens"
            )
        return _Opened(self._library, handle)


class _Opened:
    """The memory of a thread, freed with this object."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self.handle = handle
        self._close = library.close_encoder

    def __del__(self) -> None:
        self._close(self.handle)


def _rounded(weights: Floats) -> tuple[NDArray[np.int16], Floats]:
    """Return a matrix's integers, shape (outputs / panel, inputs / 2, panel, 2), and the outputs' scales."""
    largest: Floats = np.abs(weights).max(axis=1)
    if not np.isfinite(largest).all():
        raise ValueError("a matrix has a value that is not finite")
    scales: Floats = np.asarray(np.maximum(largest, 1e-30) / _LARGEST, dtype=np.float32)
    outputs, inputs = weights.shape
    integers = np.rint(weights / scales[:, None]).astype(np.int16)
    return integers.reshape(outputs // _PANEL, _PANEL, inputs // 2, 2).transpose(0, 2, 1, 3), scales


def _aligned(parts: Sequence[NDArray[_Value]], dtype: type[_Value]) -> NDArray[_Value]:
    """Return the values of all parts in one array that begins at a cache line, as its loads are fastest."""
    size = sum(part.size for part in parts) * np.dtype(dtype).itemsize
    block = np.empty(size + _CACHE_LINE, dtype=np.uint8)
    start = -block.ctypes.data % _CACHE_LINE
    joined: NDArray[_Value] = block[start : start + size].view(dtype)
    np.concatenate([part.ravel() for part in parts], out=joined)
    return joined
