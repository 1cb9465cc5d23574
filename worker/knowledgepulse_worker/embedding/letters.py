"""The letters of texts by script, which tell whether a model that knows English can read them."""

from __future__ import annotations

import re
import string
from typing import NamedTuple

READ_CHARACTERS = 1000
"""The characters of a text whose letters are counted: about what a window of 256 tokens holds."""

_ASCII_LETTERS = string.ascii_letters.encode()
_NO_LETTERS = re.compile(r"[\W\d_]+")
# Latin are Latin-1 and Latin Extended, with the letters of Vietnamese, and those of full width.
_OTHER_LETTERS = re.compile(r"[\u0250-\u1dff\u1f00-\uff20\uff5b-\U0010ffff]+")


class Letters(NamedTuple):
    """Numbers of letters by script."""

    latin: int
    other: int


def letters_of(text: str) -> Letters:
    """Count the letters of a text's first :data:`READ_CHARACTERS`, which takes up to 50 µs, or 1 in ASCII."""
    head = text[:READ_CHARACTERS]
    if head.isascii():
        return Letters(len(head) - len(head.encode().translate(None, _ASCII_LETTERS)), 0)
    letters = _NO_LETTERS.sub("", head)
    latin = len(_OTHER_LETTERS.sub("", letters))
    return Letters(latin, len(letters) - latin)
