"""Marked parts of a text that a stranger wrote, found in a time that grows no faster than the text.

A pattern such as ``<a>.*?</a>`` searches to the end of the text from each ``<a>`` that is not closed. Here, a
closing mark that is missing is searched for once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Element(NamedTuple):
    """A part of a text; ``start`` and ``end`` include its marks.

    Attributes:
        name: the first group of its opening mark.
        content: the text between the marks.
        closed: whether it has a closing mark; otherwise it reaches to the end of the text.
    """

    name: str
    start: int
    end: int
    content: str
    closed: bool


def elements(text: str, opening: re.Pattern[str], closing: str = "</{}>") -> Iterator[Element]:
    """Yield the elements of a text that are in no other, and the first unclosed one of each name.

    Args:
        text: any text.
        opening: matches an opening mark, whose first group is the name. A line break that it ends with may
            also begin the closing mark.
        closing: the closing mark; ``{}`` stands for the name.
    """
    position = 0
    unclosed = set()  # names without a further closing mark
    for mark in opening.finditer(text):
        name = mark[1]
        if mark.start() < position or name in unclosed:
            continue
        closes = closing.format(name)
        start = mark.end()
        end = text.find(closes, start - mark[0].endswith("\n"))
        if end < 0:
            unclosed.add(name)
            yield Element(name, mark.start(), len(text), text[start:], closed=False)
        else:
            position = end + len(closes)
            yield Element(name, mark.start(), position, text[start:end], closed=True)


def outside(text: str, within: Iterable[Element]) -> str:
    """Return a text without elements, which are in their order."""
    kept, position = [], 0
    for element in within:
        kept.append(text[position : element.start])
        position = element.end
    return "".join([*kept, text[position:]])
