"""The calls of the compiled library that embeds texts by their words.

``words.c`` gives exactly what :mod:`.lexical` computes without it, in a fraction of the time.
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
from knowledgepulse_worker.scoring.words import MAX_PARTS, MAX_WORDS, kinds_of_characters

MOST = 3 * MAX_WORDS
"""The most words of a part: as many characters and pairs of other scripts as there are words."""

_COMMON_SLOTS = 1024


class WordVectors(NamedTuple):
    """Texts embedded by their words.

    Attributes:
        vectors: shape (texts, dimensions), rows of length 1.
        buckets: the buckets of the distinct words of each text's parts for learned values, one text after
            another.
        numbers: the numbers of these, shape (texts,).
    """

    vectors: NDArray[np.float32]
    buckets: NDArray[np.uint16]
    numbers: NDArray[np.int64]


class _Lexicon(ctypes.Structure):
    _fields_ = (
        ("kinds", ctypes.c_void_p),
        ("kind_count", ctypes.c_size_t),
        ("common", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("dimensions", ctypes.c_size_t),
        ("buckets", ctypes.c_size_t),
    )


class CompiledVectors:
    """Embeds texts.

    Args:
        library: the compiled library.
        common: the common words, of at most eight bytes.
        weights: the weights of words by their number of occurrences, up to :data:`MOST`, and in a second row
            those of common words.
        dimensions: the length of the vectors.
    """

    def __init__(
        self, library: ctypes.CDLL, common: Iterable[bytes], weights: NDArray[np.float64], dimensions: int
    ) -> None:
        if weights.shape != (2, MOST + 1):
            raise ValueError(f"expected weights of shape (2, {MOST + 1}), got {weights.shape}")
        self._embed_words = library.embed_words
        self._dimensions = dimensions
        self._arrays = _kinds(), _table(common), np.ascontiguousarray(weights)
        kinds, *others = (array.ctypes.data for array in self._arrays)
        self._lexicon = _Lexicon(kinds, len(_kinds()), *others, dimensions, BUCKETS)

    def __call__(self, parts: Sequence[bytes]) -> WordVectors:
        """Embed texts.

        Args:
            parts: the parts of each text, :data:`MAX_PARTS` for each, as UTF-8 in lower case.
        """
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        texts = len(parts) // MAX_PARTS
        sums = np.empty((2, self._dimensions))
        vectors = np.empty((texts, self._dimensions), np.float32)
        buckets = np.empty(int(sizes.sum()), np.uint16)  # every byte may be a word
        numbers = np.empty(texts, np.int64)
        self._embed_words(
            *(b"".join(parts), _pointer(sizes), texts, ctypes.byref(self._lexicon)),
            *(_pointer(sums), _pointer(vectors), _pointer(buckets), _pointer(numbers)),
        )
        return WordVectors(vectors, buckets[: int(numbers.sum())], numbers)


@cache
def compiled_library() -> ctypes.CDLL | None:
    """Return the compiled library; None where the worker was installed without a C compiler."""
    file = Path(__file__).with_name("words.so")
    if not file.exists():
        return None
    library = ctypes.CDLL(str(file))
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    library.embed_words.restype = None
    library.embed_words.argtypes = [
        *(ctypes.c_char_p, pointer, size, ctypes.POINTER(_Lexicon)),
        *(pointer, pointer, pointer, pointer),
    ]
    return library


@cache
def _kinds() -> NDArray[np.uint32]:
    """Return the kinds of all characters, once a process: it takes 30 ms to look at each of them."""
    return np.array([first << 2 | kind for first, kind in kinds_of_characters()], np.uint32)


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
