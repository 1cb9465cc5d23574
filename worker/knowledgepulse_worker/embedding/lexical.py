"""An embedder without a model, which hashes the words of a whole text.

A text's vector is the sum of its words' vectors (signed feature hashing: Weinberger et al. 2009,
arXiv:0902.2206):

- However often a word is repeated, it counts less than 2.2 times as much as a single occurrence, so that a
  repeated line does not outweigh the rest (the saturation of BM25: Robertson and Zaragoza 2009,
  doi:10.1561/1500000019).
- English function words, single letters and digits have the weight :data:`DISCOUNT`, since every text has
  them. No other statistics are used: the statistics of a partition would change the meaning of its earlier
  vectors.
- In scripts without spaces between words, each character and each pair of characters counts as a word.
- The parts of a text, which ``scoring.PART_SEPARATOR`` separates, have equal weight, however long they are.
  This is the simplest form of weighted fields (Robertson, Zaragoza and Taylor 2004,
  doi:10.1145/1031171.1031181).
  Otherwise, long steps of an agent would outweigh its task.

``docs/curators/evidence.md`` reports its accuracy and the alternatives that were tried.
"""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.embedding.base import Embeddings, ModelInput, Precision
from knowledgepulse_worker.embedding.word_vectors import MOST, CompiledVectors, WordVectors, compiled_library
from knowledgepulse_worker.policy import BUCKETS
from knowledgepulse_worker.scoring import TraceText
from knowledgepulse_worker.scoring.words import (
    MAX_PARTS,
    buckets_of,
    hashes_of,
    lowered,
    parts_of,
    words_of,
)

DISCOUNT = 0.3
"""The weight of a common word."""

_SATURATION = 1.2

_WEIGHTS, _PARTS = 1 << 10, 1 << 20
"""Units of a word's weight and of a part's vector. Sums of whole numbers are exact in any order and on any
machine, so a text always has the same vector, to the last bit."""

_ENGLISH = """
    about after all also am an and any are as at be because been but by can could did do does for from had has
    have he her his how if in into is it its me my no not of on or our she should so some such than that the
    their them then there these they this to was we were what when where which who will with would you your
"""
_COMMON = frozenset(word.encode() for word in (*_ENGLISH.split(), *string.ascii_lowercase, *string.digits))


class LexicalEmbedder:
    """Embeds texts by their words, so that texts with common words are similar.

    A text has the same vector on every machine, to the last bit. Texts that differ only in white space have
    the same vector. A text without words has a vector, too.

    Args:
        dimensions: the length of the vectors.
        text: the text of a trace that is embedded.
    """

    precision: Precision = "float32"
    device = "cpu"
    runtime = "NumPy"
    parallel = 1
    batch = 64

    def __init__(self, dimensions: int = 384, text: TraceText = "parts") -> None:
        self.dimensions = dimensions
        self._reads_parts = text == "parts"
        library, counts = compiled_library(), np.arange(MOST + 1, dtype=np.float64)
        weights = _weights(counts, np.array([[False], [True]]))
        self._compiled = library and CompiledVectors(library, _COMMON, weights, dimensions)
        model_input = ModelInput(text)
        self.identity = model_input.identity(hashlib.sha256(f"lexical 1 {dimensions}".encode()).hexdigest())
        self.description = model_input.description("lexical")

    def warm(self) -> None:
        """Do nothing, since no model has to be loaded."""

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed the texts; parts longer than :data:`MAX_CHARACTERS` are truncated."""
        parts, truncated = [], 0
        for text in texts:
            read, is_cut = parts_of(text)
            truncated += is_cut
            parts += read + [""] * (MAX_PARTS - len(read))
        embedded = self._compiled([*map(lowered, parts)]) if self._compiled else self._embedded(parts)
        buckets = None
        if self._reads_parts:
            ends = embedded.numbers.cumsum().tolist()
            buckets = [embedded.buckets[start:end].tobytes() for start, end in pairwise([0, *ends])]
        return Embeddings(embedded.vectors, truncated, buckets=buckets)

    def _embedded(self, parts: Sequence[str]) -> WordVectors:
        """Embed texts, of :data:`MAX_PARTS` parts each, without the compiled library."""
        counts = [Counter(words_of(part)) for part in parts]
        sizes = np.fromiter(map(len, counts), np.int64, len(counts))
        size = int(sizes.sum())
        hashes = hashes_of(chain.from_iterable(counts), size)
        count = np.fromiter(chain.from_iterable(words.values() for words in counts), np.float64, size)
        common = np.fromiter(map(_COMMON.__contains__, chain.from_iterable(counts)), np.bool_, size)
        weights = _weights(count, common)
        rows = np.repeat(np.arange(len(counts)), sizes)
        sums = np.bincount(
            rows * self.dimensions + buckets_of(hashes, self.dimensions),
            np.where(hashes & np.uint64(1 << 31), weights, -weights),
            len(counts) * self.dimensions,
        )
        units = _normalized(np.asarray(sums, np.float64).reshape(len(counts), self.dimensions))
        totals = np.rint(_PARTS * units).reshape(-1, MAX_PARTS, self.dimensions).sum(axis=1)
        totals[~totals.any(axis=1), 0] = 1  # no words, or they cancel each other out
        vectors = _normalized(totals).astype(np.float32)
        numbers = sizes.reshape(-1, MAX_PARTS).sum(axis=1)
        return WordVectors(vectors, buckets_of(hashes, BUCKETS).astype(np.uint16), numbers)


def _weights(count: NDArray[np.float64], common: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the weights of words from their numbers of occurrences, in whole numbers."""
    saturated = (1 + _SATURATION) * count / (count + _SATURATION)
    return np.rint(_WEIGHTS * np.where(common, DISCOUNT, 1) * saturated)


def _normalized(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale rows of whole numbers to length 1; rows of length 0 remain unchanged."""
    squares = (rows * rows).sum(axis=1, keepdims=True)
    return rows / np.sqrt(np.where(squares, squares, 1))
