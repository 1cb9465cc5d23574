"""Look-ups in C among the vectors of a novelty cache, with the same results as NumPy's, to the last bit.

``nearest.c`` keeps each vector in bytes, too, which tell the few that may be the nearest. It is compiled once
for each set of instructions where the worker is installed with a C compiler.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_DIMENSIONS = 16_384
"""The most dimensions of the vectors, those of ``nearest.c``."""

_INSTRUCTIONS = {
    "nearest_avx512vnni": {"avx512_vnni", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "bmi2", "fma"},
    "nearest_avx2": {"avx2", "bmi2", "fma"},
    "nearest": frozenset[str](),
}
"""The libraries, the fastest first, with Linux's names of the instructions that each may contain."""


NOT_FINITE = "the vector is not finite"


class Found(NamedTuple):
    """The slot of the nearest vector, the oldest among equals, and its similarity."""

    slot: int
    similarity: float


class _Vectors(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("rows", "bytes", "scales", "errors", "times", "highest")),
        *((name, ctypes.c_size_t) for name in ("slots", "dimensions")),
    )


class CompiledLookUps:
    """Look-ups among vectors.

    Args:
        library: the compiled library.
        times: the times of the vectors, shape (slots,).
        dimensions: the length of the vectors.
    """

    def __init__(self, library: ctypes.CDLL, times: NDArray[np.float64], dimensions: int) -> None:
        slots = len(times)
        shape = slots + 1, dimensions
        rows, rounded = np.zeros(shape, np.float32), np.zeros(shape, np.int8)
        scales, errors, highest = np.zeros((3, slots + 1), np.float32)
        self._arrays = rows, rounded, scales, errors, times, highest
        self._vectors = _Vectors(*(array.ctypes.data for array in self._arrays), slots, dimensions)
        self._pointer = ctypes.addressof(self._vectors)
        self._similarity = ctypes.c_double()
        self._result = ctypes.addressof(self._similarity)
        self._read, self._put, self._nearest = library.read_vector, library.put_vector, library.nearest
        self._content = b""

    def put(self, vector: NDArray[np.float32], slot: int) -> None:
        """Put a vector into a slot.

        Raises:
            ValueError: the vector is not finite.
        """
        self._take(vector)
        self._put(self._pointer, slot)

    def nearest(self, vector: NDArray[np.float32], size: int, oldest: int, since: float) -> Found | None:
        """Return the vector nearest to one; None if none is recent enough.

        Args:
            vector: the vector, shape (dimensions,).
            size: the number of vectors, which are in the first slots.
            oldest: the slot of the oldest; the next ones follow it, from the first slot on at last.
            since: the time from which on vectors count.

        Raises:
            ValueError: the vector is not finite.
        """
        self._take(vector)
        slot = self._nearest(self._pointer, size, oldest, since, self._result)
        return None if slot < 0 else Found(slot, self._similarity.value)

    def _take(self, vector: NDArray[np.float32]) -> None:
        """Read a vector, unless it was read last, as that of a trace that is looked up before it is added."""
        content = vector.tobytes()
        if content == self._content:
            return
        if not self._read(self._pointer, content):
            raise ValueError(NOT_FINITE)
        self._content = content


def look_ups(times: NDArray[np.float64], dimensions: int) -> CompiledLookUps | None:
    """Return look-ups among vectors; None without a library or for too many dimensions."""
    fits = dimensions <= MOST_DIMENSIONS
    return CompiledLookUps(libraries()[0], times, dimensions) if fits and libraries() else None


@cache
def libraries() -> tuple[ctypes.CDLL, ...]:
    """Return the libraries that the processor runs, the fastest first."""
    try:
        flags = {*Path("/proc/cpuinfo").read_text().split()}
    except OSError:
        flags = set()
    names = [name for name, needed in _INSTRUCTIONS.items() if flags >= needed]
    files = [Path(__file__).with_name(f"{name}.so") for name in names]
    return tuple(_opened(file) for file in files if file.exists())


def _opened(file: Path) -> ctypes.CDLL:
    library = ctypes.PyDLL(str(file))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.read_vector.argtypes = [pointer, ctypes.c_char_p]
    library.put_vector.restype = None
    library.put_vector.argtypes = [pointer, size]
    library.nearest.restype = ctypes.c_ssize_t
    library.nearest.argtypes = [pointer, size, size, ctypes.c_double, pointer]
    return library
