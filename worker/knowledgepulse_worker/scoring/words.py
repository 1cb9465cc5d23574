"""The words of a text, and the hashes by which vectors and learned values know them.

Vectors and stored policies depend on them, so neither the words of a text nor their hashes ever change.
"""

from __future__ import annotations

import re
from binascii import crc32
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.policy import BUCKETS
from knowledgepulse_worker.scoring.text import PART_SEPARATOR, TraceLike, word_texts

MAX_PARTS = 3
"""Maximum parts of a text; any further separator counts as a space."""

MAX_CHARACTERS = 32_768
"""Maximum characters of a part that are read, to bound the work; a run of white space counts as one."""

MAX_WORDS = 4096
"""Maximum words of a part that are read, and maximum characters that are searched for pairs."""

_SPLIT = bytes(
    byte if byte > 127 or chr(byte).isalnum() or chr(byte) == "_" else ord(" ") for byte in range(256)
)
# Thai, Lao, Burmese, Khmer, kana, ideographs.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_END_OF_LETTERS = 0x40000  # the planes from here on are for private use and for marks
_RUNS = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|[^\W{_UNSPACED}]+")
_PAIR = re.compile(rf"(?=([{_UNSPACED}]{{2}}))")


def parts_of(text: str) -> tuple[list[str], bool]:
    """Return the parts of a text, each cut to :data:`MAX_CHARACTERS`, and whether any was longer."""
    read = [_with_single_spaces(part) for part in text.split(PART_SEPARATOR, MAX_PARTS - 1)]
    return [part[:MAX_CHARACTERS] for part in read], any(len(part) > MAX_CHARACTERS for part in read)


def words_of(part: str) -> list[bytes]:
    """Return the words of a part in lower case and UTF-8; ASCII words, which need no pattern, come first."""
    encoded = lowered(part).translate(_SPLIT)
    words = encoded.split()[:MAX_WORDS]
    if encoded.isascii():
        return words
    others = b" ".join(word for word in words if not word.isascii()).decode()
    unspaced: list[str] = _WORD.findall(others)[:MAX_WORDS] + _PAIR.findall(others, 0, MAX_WORDS)
    return [word for word in words if word.isascii()] + [word.encode() for word in unspaced]


def lowered(part: str) -> bytes:
    """Return a part in lower case and UTF-8."""
    return part.lower().encode("utf-8", "replace")


class Kind(IntEnum):
    """What a character is for the words of a text."""

    SEPARATOR = 0
    LETTER = 1
    UNSPACED = 2


def kinds_of_characters() -> Iterator[tuple[int, Kind]]:
    """Yield, in order, each character at which the kind changes, with the new kind."""
    yield 0, Kind.SEPARATOR
    for run in _RUNS.finditer("".join(map(chr, range(_END_OF_LETTERS)))):
        yield run.start(), Kind.UNSPACED if run["unspaced"] else Kind.LETTER
        yield run.end(), Kind.SEPARATOR


def hashes_of(words: Iterable[bytes], number: int) -> NDArray[np.uint64]:
    """Return the hash of each word, shape (number,)."""
    # CRC is linear, so without the multiplication similar words would get adjacent buckets.
    return np.fromiter(map(crc32, words), np.uint64, number) * np.uint64(0x9E3779B97F4A7C15)


def buckets_of(hashes: NDArray[np.uint64], buckets: int) -> NDArray[np.int64]:
    """Return the bucket of each hash, from 0, shape (hashes,)."""
    return ((hashes >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def distinct_words(trace: TraceLike) -> str:
    """Return the distinct words of each part of a trace's text ``parts``, with spaces between them."""
    parts = map(words_of, word_texts(trace))
    return b" ".join(chain.from_iterable(map(dict.fromkeys, parts))).decode()


def word_buckets(trace: TraceLike) -> bytes:
    """Return the buckets of these words for learned values, two bytes each, in any order."""
    words = [*chain.from_iterable(map(set, map(words_of, word_texts(trace))))]
    return buckets_of(hashes_of(words, len(words)), BUCKETS).astype(np.uint16).tobytes()


def _with_single_spaces(part: str) -> str:
    """Return a part with single spaces if it is long, cut one character after :data:`MAX_CHARACTERS`."""
    if len(part) <= MAX_CHARACTERS:
        return part
    return " ".join(part.split(maxsplit=MAX_CHARACTERS)[:MAX_CHARACTERS])[: MAX_CHARACTERS + 1]
