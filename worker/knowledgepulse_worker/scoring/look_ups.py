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

_AVX2 = {"avx2", "fma"}
"""Linux's names of the instructions that the faster library may contain."""


class Found(NamedTuple):
    """The slot of the nearest vector, the oldest among equals, and its similarity."""

    slot: int
    similarity: float


class _Vectors(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("rows", "bytes", "scales", "errors", "times", "highest")),
        ("dimensions", ctypes.c_size_t),
    )


class CompiledLookUps:
    """Look-ups among vectors.

    Args:
        library: the compiled library.
        matrix: the vectors of length 1 or 0, shape (slots, dimensions), C-contiguous.
        times: their times, shape (slots,).
    """

    def __init__(self, library: ctypes.CDLL, matrix: NDArray[np.float32], times: NDArray[np.float64]) -> None:
        slots, dimensions = matrix.shape
        rounded = np.zeros((slots, dimensions), np.int8)
        scales, errors, highest = np.zeros((3, slots), np.float32)
        self._arrays = matrix, rounded, scales, errors, times, highest
        self._vectors = _Vectors(*(array.ctypes.data for array in self._arrays), dimensions)
        self._pointer = ctypes.addressof(self._vectors)
        self._similarity = ctypes.c_double()
        self._result = ctypes.addressof(self._similarity)
        self._put, self._nearest = library.round_row, library.nearest

    def put(self, slot: int) -> None:
        """Take note of a vector that was put into a slot."""
        self._put(self._pointer, slot)

    def nearest(self, unit: NDArray[np.float32], size: int, oldest: int, since: float) -> Found | None:
        """Return the vector nearest to one of length 1 or 0; None if none is recent enough.

        Args:
            unit: the vector, C-contiguous.
            size: the number of vectors, which are in the first slots.
            oldest: the slot of the oldest; the next ones follow it, from the first slot on at last.
            since: the time from which on vectors count.
        """
        slot = self._nearest(self._pointer, unit.ctypes.data, size, oldest, since, self._result)
        return None if slot < 0 else Found(slot, self._similarity.value)


def look_ups(matrix: NDArray[np.float32], times: NDArray[np.float64]) -> CompiledLookUps | None:
    """Return look-ups among vectors; None without a library or for too many dimensions."""
    fits = matrix.shape[1] <= MOST_DIMENSIONS
    return CompiledLookUps(libraries()[0], matrix, times) if fits and libraries() else None


@cache
def libraries() -> tuple[ctypes.CDLL, ...]:
    """Return the libraries that the processor runs, the fastest first."""
    try:
        flags = {*Path("/proc/cpuinfo").read_text().split()}
    except OSError:
        flags = set()
    files = [Path(__file__).with_name("nearest_avx2.so")] if flags >= _AVX2 else []
    files.append(Path(__file__).with_name("nearest.so"))
    return tuple(_opened(file) for file in files if file.exists())


def _opened(file: Path) -> ctypes.CDLL:
    library = ctypes.PyDLL(str(file))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.round_row.restype = None
    library.round_row.argtypes = [pointer, size]
    library.nearest.restype = ctypes.c_ssize_t
    library.nearest.argtypes = [pointer, pointer, size, size, ctypes.c_double, pointer]
    return library
