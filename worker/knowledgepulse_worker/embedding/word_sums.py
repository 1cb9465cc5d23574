"""The calls of the compiled library that counts and adds words.

``words.c`` gives exactly what :mod:`.lexical` computes without it, in a fifth of the time.
"""

from __future__ import annotations

import ctypes
from binascii import crc32
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.policy import BUCKETS
from knowledgepulse_worker.scoring.words import MAX_WORDS

MOST = 3 * MAX_WORDS
"""The most words of a text: as many characters and pairs of other scripts as there are words."""

_COMMON_SLOTS = 1024


class WordSums(NamedTuple):
    """The words of texts.

    Attributes:
        sums: the sum of each text's words, shape (texts, dimensions).
        buckets: the buckets of each text's distinct words for learned values, one text after another.
        numbers: the numbers of distinct words, shape (texts,).
    """

    sums: NDArray[np.float64]
    buckets: NDArray[np.uint16]
    numbers: NDArray[np.int64]


class CompiledSums:
    """Counts and adds the words of texts.

    Args:
        library: the compiled library.
        common: the common words, of at most eight bytes.
        weights: the weights of words by their number of occurrences, up to :data:`MOST`, and in a second row
            those of common words.
        dimensions: the number of buckets of a sum.
    """

    def __init__(
        self, library: ctypes.CDLL, common: Iterable[bytes], weights: NDArray[np.float64], dimensions: int
    ) -> None:
        if weights.shape != (2, MOST + 1):
            raise ValueError(f"expected weights of shape (2, {MOST + 1}), got {weights.shape}")
        self._sum_words = library.sum_words
        self._common = _table(common)
        self._weights = np.ascontiguousarray(weights)
        self._dimensions = dimensions

    def __call__(self, texts: Sequence[bytes]) -> WordSums:
        """Count and add the words of texts, which other characters than letters, digits and `_` separate.

        Args:
            texts: UTF-8 in lower case, each of at most :data:`MOST` words; every byte above 127 is a letter.
        """
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        sums = np.zeros((len(texts), self._dimensions))
        buckets = np.empty((int(sizes.sum()) + len(texts)) // 2, np.uint16)  # every other byte may be a word
        numbers = np.empty(len(texts), np.int64)
        self._sum_words(
            *(b"".join(texts), _pointer(sizes), len(texts), _pointer(self._common), _pointer(self._weights)),
            *(self._dimensions, _pointer(sums), BUCKETS, _pointer(buckets), _pointer(numbers)),
        )
        return WordSums(sums, buckets[: int(numbers.sum())], numbers)


@cache
def compiled_library() -> ctypes.CDLL | None:
    """Return the compiled library; None where the worker was installed without a C compiler."""
    file = Path(__file__).with_name("words.so")
    if not file.exists():
        return None
    library = ctypes.CDLL(str(file))
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    library.sum_words.restype = None
    library.sum_words.argtypes = [
        *(ctypes.c_char_p, pointer, size, pointer, pointer),
        *(size, pointer, size, pointer, pointer),
    ]
    return library


def _table(words: Iterable[bytes]) -> NDArray[np.uint64]:
    """Return a hash table of words, in which each takes the first free slot behind that of its hash."""
    table = np.zeros(_COMMON_SLOTS, np.uint64)
    for word in words:
        slot = crc32(word) % _COMMON_SLOTS
        while table[slot]:
            slot = (slot + 1) % _COMMON_SLOTS
        table[slot] = int.from_bytes(word.ljust(8, b"\0"), "little")
    return table


def _pointer(array: NDArray[np.generic]) -> int:
    return int(array.ctypes.data)
